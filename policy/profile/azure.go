package profile

import (
	"net/http"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// retryWith is a status that Cosmos DB uses.
const retryWith = 449

// Azure returns a rule for the services of Azure, such as Resource Manager,
// Storage, Cosmos DB and Azure OpenAI.
//
//   - Signals: retry-after-ms and x-ms-retry-after-ms are in milliseconds,
//     Retry-After in seconds or a date. The first of them that is there counts. With
//     a 201 or 202, Retry-After is for polling and is no reason for a retry.
//   - Final: every 4xx but those named here, such as a 409 whose code is
//     QuotaExceeded. A 429 is final if a paid quota is used up (insufficient_quota).
//   - POST is sent again after any other 429, after a 503 whose code is ServerBusy
//     (x-ms-error-code or the XML body), and after the 449 of Cosmos DB, whose write
//     lost against another. Any other 5xx is ambiguous.
//   - Scope: the credentials. A shared key counts by the name of the account.
//   - Limits: request bodies of up to 16 MiB are kept, because the SDK sends the
//     blocks of an upload without GetBody.
//
// Sources, read on 2026-11-22:
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling,
// https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes,
// https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb and
// https://github.com/Azure/azure-sdk-for-go/blob/sdk/azcore/v1.24.0/sdk/azcore/internal/shared/shared.go.
func Azure() policy.Rule {
	return policy.Rule{
		Classify: judge(
			serverBusy,
			onWords(classify.Refused, []int{http.StatusServiceUnavailable}, "<Code>ServerBusy</Code>"),
			classify.OnStatus(classify.Refused, retryWith),
		),
		Hint:   classify.DefaultHint,
		Upload: policy.Upload{Memory: memory},
	}
}

// serverBusy recognises a refusal by its header alone, because the response to a HEAD
// has no body.
func serverBusy(o classify.Outcome) classify.Verdict {
	if o.Response != nil && o.Response.StatusCode == http.StatusServiceUnavailable &&
		o.Response.Header.Get("X-Ms-Error-Code") == "ServerBusy" {
		return classify.Refused
	}
	return classify.Unknown
}
