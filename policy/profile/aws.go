package profile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/internal/peek"
	"github.com/aplomb-go/aplomb/policy"
)

// AWS returns a rule for the services of AWS, S3 included.
//
//   - A refusal has an error code of throttling, in x-amzn-errortype or in a JSON, XML or
//     CBOR body. It may have status 400. The unit of x-amz-retry-after is a millisecond, and
//     that of Retry-After is a second.
//   - If a service quota is used up (ServiceQuotaExceededException), the response is final
//     whatever its status. So is every 4xx that is no refusal.
//   - A POST is sent again after a code of throttling, after a 429, and after a 503 that
//     names a wait. It is also sent again after any 503 of S3, because S3 sheds load
//     before it acts. If another service sends a 500 or 503, only idempotent requests are
//     sent again.
//   - S3 sends a 200 to CompleteMultipartUpload, CopyObject and UploadPartCopy before it
//     knows the result, and then white space, for minutes at times. The response is returned
//     when the result is there. If that is an error, it is judged as the status that its code
//     stands for. A CompleteMultipartUpload is a POST, and is sent again after an
//     InternalError as well, as AWS says, unless it has an If-Match or an If-None-Match. The
//     other two are PUTs and are idempotent. No other 200 is looked at.
//   - Requests share a scope if their signatures have the same access key. The service, the
//     region and often the bucket are in the name of the host.
//   - Request bodies of up to 16 MiB are kept, because the SDK sends the parts of an upload
//     without GetBody.
//
// The sources were read on 2026-11-22.
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html,
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/ErrorBestPractices.html,
// https://repost.aws/knowledge-center/http-5xx-errors-s3,
// https://sdk.amazonaws.com/kotlin/api/latest/s3/aws.sdk.kotlin.services.s3/-s3-client/complete-multipart-upload.html
// and https://github.com/aws/aws-sdk-js-v3/issues/1657. The codes are those of
// https://github.com/aws/aws-sdk-go-v2/blob/v1.47.7/aws/retry/standard.go.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.AWS()) adds to it.
func AWS() policy.Rule {
	return policy.Rule{
		Classify: judgeInside(s3Inside, awsCodes,
			given(classify.Refused, http.StatusServiceUnavailable, ofS3),
			given(classify.Refused, http.StatusInternalServerError, s3Incomplete),
		),
		RetryAfter:   hintInside(s3Inside, classify.RetryAfter),
		ReplayBuffer: memory,
	}
}

func awsCodes(o classify.Outcome) classify.Class {
	if o.Response == nil || o.Response.StatusCode < http.StatusBadRequest {
		return classify.Unknown
	}
	switch awsCode(o) {
	case "ServiceQuotaExceededException":
		return classify.Final
	case "RequestTimeout", "RequestTimeoutException":
		return classify.Ambiguous // S3 waited in vain for the rest of the request
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException",
		"RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown",
		"PriorRequestNotComplete", "EC2ThrottledException": // the service limits the requests
		return classify.Refused
	}
	return classify.Unknown
}

// awsCode returns the error code of a response, or "". In the header a colon and a URL
// may follow the code. In the body a name space and a # may precede it.
func awsCode(o classify.Outcome) string {
	code := o.Response.Header.Get("X-Amzn-Errortype")
	if code == "" {
		code = codeInBody(o)
	}
	code, _, _ = strings.Cut(code, ":")
	return strings.TrimSpace(code[strings.LastIndexByte(code, '#')+1:])
}

// codeInBody looks for a code in the statuses that throttling has besides 429,
// which needs no code. The body of any other 4xx is left alone.
func codeInBody(o classify.Outcome) string {
	if s := o.Response.StatusCode; s != http.StatusBadRequest && s < http.StatusInternalServerError {
		return ""
	}
	body := o.Peek(64 << 10)
	if code, ok := codeInXML(body); ok {
		return code
	}
	if code, ok := codeInCBOR(body); ok {
		return code
	}
	var answer struct {
		Type string `json:"__type"`
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return cmp.Or(answer.Type, answer.Code)
}

// codeInCBOR returns the error code of a body in CBOR (RFC 8949), in which a map has it under
// "__type" (Smithy RPC v2). A text string begins with its length.
func codeInCBOR(body []byte) (code string, ok bool) {
	const text = 0x60 // the major type of a text string; the low five bits are a length up to 23
	if len(body) == 0 || body[0]>>5 != 5 {
		return "", false // no map
	}
	_, value, ok := bytes.Cut(body, []byte("\x66__type"))
	if !ok || len(value) < 2 {
		return "", false
	}
	head, length := 1, int(value[0])-text
	if length == 24 { // the length is in the next byte
		head, length = 2, int(value[1])
	}
	if length < 0 || value[0] > text+24 || len(value) < head+length {
		return "", false
	}
	return string(value[head : head+length]), true
}

// ofS3 recognises a response of S3.
func ofS3(o classify.Outcome) bool {
	h := o.Response.Header
	return h.Get("X-Amz-Id-2") != "" || h.Get("Server") == "AmazonS3" || isS3(urlOf(o.Request).Hostname()) || copies(o.Request) || completes(o.Request)
}

// isS3 reports whether a host of AWS has a label of S3, such as s3, s3-eu-west-1 or
// s3express-use1-az4.
func isS3(host string) bool {
	if !strings.HasSuffix(host, ".amazonaws.com") && !strings.HasSuffix(host, ".amazonaws.com.cn") {
		return false
	}
	return slices.ContainsFunc(strings.Split(host, "."), func(label string) bool {
		return label == "s3" || strings.HasPrefix(label, "s3-") || strings.HasPrefix(label, "s3express-")
	})
}

func codeInXML(body []byte) (code string, ok bool) {
	_, rest, ok := bytes.Cut(body, []byte("<Code>"))
	text, _, _ := bytes.Cut(rest, []byte("</Code>"))
	return string(text), ok
}

// s3Inside is the look at the three responses of S3 that may have an error inside.
func s3Inside(o classify.Outcome) (classify.Outcome, bool) {
	if o.Response == nil || o.Response.StatusCode != http.StatusOK || !copies(o.Request) && !completes(o.Request) {
		return o, false
	}
	root := ""
	head, err := peek.Outcome(o).Await(peek.Limit, func(head []byte) bool {
		root = rootOf(head)
		return root != "" && (root != "Error" || bytes.Contains(head, []byte("</Error>")))
	})
	switch {
	case root == "Error":
		return standFor(o, s3Status(head), head), true
	case head == nil, root != "", err == nil:
		return o, false
	case err == io.EOF && o.Response.ContentLength == 0:
		return o, false // an answer of another server, which has nothing to tell
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return lost(o, err), true
}

// copies reports whether a request is a CopyObject or an UploadPartCopy of S3.
func copies(req *http.Request) bool {
	return req != nil && req.Method == http.MethodPut && len(req.Header["X-Amz-Copy-Source"]) > 0
}

// completes reports whether a request is a CompleteMultipartUpload of S3.
func completes(req *http.Request) bool {
	return req != nil && req.Method == http.MethodPost && strings.Contains(urlOf(req).RawQuery, "uploadId=") &&
		urlOf(req).Query().Get("uploadId") != ""
}

// rootOf returns the name of the root element of a document. It is "" if the name has not
// come yet, and "?" if the document is no XML.
func rootOf(doc []byte) string {
	doc = bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))
	for {
		doc = bytes.TrimLeft(doc, " \t\r\n")
		end := ">"
		switch {
		case len(doc) == 0:
			return ""
		case doc[0] != '<':
			return "?"
		case bytes.HasPrefix(doc, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(doc, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(doc, []byte("<!")):
		default:
			if i := bytes.IndexAny(doc, " \t\r\n/>"); i > 0 {
				return string(doc[1:i])
			}
			return ""
		}
		_, rest, ok := bytes.Cut(doc, []byte(end))
		if !ok {
			return ""
		}
		doc = rest
	}
}

// s3Status returns the status that an error of S3 has if it does not come in a 200.
func s3Status(doc []byte) int {
	switch code, _ := codeInXML(doc); code {
	case "InternalError":
		return http.StatusInternalServerError
	case "ServiceUnavailable", "SlowDown", "Busy", "ServerBusy":
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// s3Incomplete recognises a CompleteMultipartUpload that failed, and that AWS says should
// be sent again. The upload has an ID, so it cannot be completed twice. But if the request
// has a condition, the second attempt may fail because the first had its effect.
func s3Incomplete(o classify.Outcome) bool {
	return completes(o.Request) && len(o.Request.Header["If-Match"]) == 0 && len(o.Request.Header["If-None-Match"]) == 0 &&
		awsCode(o) == "InternalError"
}
