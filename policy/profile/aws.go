package profile

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// AWS returns a rule for the services of AWS, S3 included.
//
//   - A refusal has an error code of throttling, in x-amzn-errortype or in a JSON or XML
//     body. It may have status 400. The unit of x-amz-retry-after is a millisecond, and
//     that of Retry-After is a second.
//   - If a service quota is used up (ServiceQuotaExceededException), the response is final
//     whatever its status. So is every 4xx that is no refusal.
//   - A POST is sent again after a code of throttling, after a 429, and after a 503 that
//     names a wait. It is also sent again after any 503 of S3, because S3 sheds load
//     before it acts. If another service sends a 500 or 503, only idempotent requests are
//     sent again.
//   - Requests share a scope if their signatures have the same access key. The service, the
//     region and often the bucket are in the name of the host.
//   - Request bodies of up to 16 MiB are kept, because the SDK sends the parts of an upload
//     without GetBody.
//
// The sources were read on 2026-11-22.
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html,
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/ErrorBestPractices.html and
// https://repost.aws/knowledge-center/http-5xx-errors-s3. The codes are those of
// https://github.com/aws/aws-sdk-go-v2/blob/v1.47.7/aws/retry/standard.go.
func AWS() policy.Rule {
	return policy.Rule{
		Classify: judge(awsCodes, s3Unavailable),
		Hint:     classify.DefaultHint,
		Upload:   policy.Upload{Memory: memory},
	}
}

func awsCodes(o classify.Outcome) classify.Verdict {
	if o.Response == nil || o.Response.StatusCode < http.StatusBadRequest {
		return classify.Unknown
	}
	switch code := awsCode(o); code {
	case "":
		return classify.Unknown
	case "ServiceQuotaExceededException":
		return classify.Final
	case "RequestTimeout", "RequestTimeoutException":
		return classify.Ambiguous // S3 waited in vain for the rest of the request
	default:
		if isThrottling(code) {
			return classify.Refused
		}
	}
	return classify.Unknown
}

// isThrottling reports whether a code says that the service limits the requests.
func isThrottling(code string) bool {
	return slices.Contains([]string{
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException", "TransactionInProgressException",
		"RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown",
		"PriorRequestNotComplete", "EC2ThrottledException",
	}, code)
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
	if _, rest, ok := bytes.Cut(body, []byte("<Code>")); ok {
		code, _, _ := bytes.Cut(rest, []byte("</Code>"))
		return string(code)
	}
	var answer struct {
		Type string `json:"__type"`
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	if answer.Type != "" {
		return answer.Type
	}
	return answer.Code
}

// s3Unavailable recognises a 503 of S3.
func s3Unavailable(o classify.Outcome) classify.Verdict {
	if o.Response == nil || o.Response.StatusCode != http.StatusServiceUnavailable {
		return classify.Unknown
	}
	h := o.Response.Header
	if h.Get("X-Amz-Id-2") != "" || h.Get("Server") == "AmazonS3" || isS3(urlOf(o.Request).Hostname()) {
		return classify.Refused
	}
	return classify.Unknown
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
