package recipes

import (
	"net/http"

	"github.com/google/go-github/v88/github"
)

func newGitHub(client *http.Client, token string) (*github.Client, error) {
	return github.NewClient(
		github.WithHTTPClient(client),
		github.WithAuthToken(token),
		github.WithDisableRateLimitCheck(),
	)
}
