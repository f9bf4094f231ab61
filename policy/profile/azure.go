package profile

import (
	"net/http"
	"strings"

	"github.com/aplomb-go/aplomb/classify"
	"github.com/aplomb-go/aplomb/policy"
)

// retryWith is a status that Cosmos DB uses.
const retryWith = 449

// Azure returns a rule for the services of Azure, such as Resource Manager, Storage,
// Cosmos DB and Azure OpenAI.
//
//   - The unit of retry-after-ms and x-ms-retry-after-ms is a millisecond. Retry-After is in
//     seconds or is a date. The first of the three that is there counts. If a 201 or 202
//     has Retry-After, it is about polling and is no reason for a retry.
//   - If a paid quota is used up, the response is final. It is a 409 whose code is
//     QuotaExceeded, or a 429 with insufficient_quota. So is every other 4xx but those
//     that the next item names.
//   - A POST is sent again after any other 429, and after a 503 that names a wait or whose
//     code is ServerBusy (x-ms-error-code or the XML body). It is also sent again after a
//     503 of Cosmos DB, which did not process the request, and after its 449, which means
//     that another write was faster. After any other 5xx only idempotent requests are sent
//     again.
//   - Requests share a scope if they have the same credentials. If they are signed with a
//     shared key, the name of the account counts.
//   - Request bodies of up to 16 MiB are kept, because the SDK sends the blocks of an upload
//     without GetBody.
//
// The sources were read on 2026-11-22.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling,
// https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes,
// https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb,
// https://docs.rs/crate/azure_data_cosmos_driver/0.4.0/source/docs/ErrorCodesAndRetries.md and
// https://github.com/Azure/azure-sdk-for-go/blob/sdk/azcore/v1.24.0/sdk/azcore/internal/shared/shared.go.
//
// To assign to a field, such as Classify, replaces what the profile knows.
// policy.Rule{…}.Or(profile.Azure()) adds to it.
func Azure() policy.Rule {
	return policy.Rule{
		Classify: judge(
			given(classify.Refused, http.StatusServiceUnavailable, saysBusy),
			onWords(classify.Refused, http.StatusServiceUnavailable, "<Code>ServerBusy</Code>"),
			classify.OnStatus(classify.Refused, retryWith),
			given(classify.Refused, http.StatusServiceUnavailable, ofCosmos),
		),
		ReplayBuffer: memory,
	}
}

// ofCosmos recognises a response of Cosmos DB by the host.
func ofCosmos(o classify.Outcome) bool {
	return strings.HasSuffix(urlOf(o.Request).Hostname(), ".documents.azure.com")
}

// saysBusy recognises a refusal by its header alone, because the response to a HEAD
// has no body.
func saysBusy(o classify.Outcome) bool {
	return o.Response.Header.Get("X-Ms-Error-Code") == "ServerBusy"
}
