package recipes

import (
	"net/http"

	"github.com/openai/openai-go"
	"github.com/openai/openai-go/option"
)

func newOpenAI(client *http.Client) openai.Client {
	return openai.NewClient(
		option.WithBaseURL("https://llm.example.com/v1/"),
		option.WithHTTPClient(client),
		option.WithMaxRetries(0), // 2 by default
	)
}
