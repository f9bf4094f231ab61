// OpenAI, with a server that has the shape of its API. Version 3 of the SDK takes
// two minutes of a core to compile, and version 1 takes 20 s. Both were generated
// by the same tool.

package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/openai/openai-go"
	"github.com/openai/openai-go/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/aplomb-go/aplomb/policy/profile"
)

const models = 1000

func openaiClient() client {
	return client{
		name:  "openai-go",
		off:   "`option.WithMaxRetries(0)`",
		needs: "`profile.OpenAI()`",
		rule:  profile.OpenAI(),
		size:  100 * models,
		serve: func(testing.TB, string) http.Handler { return fakeOpenAI() },
		open: func(_ testing.TB, s setup) session {
			c := newOpenAI(s)
			return session{
				download: func(ctx context.Context) error {
					page, err := c.Models.List(ctx)
					if err == nil && len(page.Data) != models {
						return fmt.Errorf("%d models", len(page.Data))
					}
					return err
				},
				upload: func(ctx context.Context, b []byte) error {
					prompt := hex.EncodeToString(sum(b))
					chat, err := c.Chat.Completions.New(ctx, ask(prompt))
					if err == nil && chat.Choices[0].Message.Content != prompt {
						return fmt.Errorf("the answer to %s was %s", prompt, chat.Choices[0].Message.Content)
					}
					return err
				},
				own: asError[*openai.Error],
			}
		},
	}
}

func newOpenAI(s setup) openai.Client {
	options := []option.RequestOption{option.WithBaseURL(s.url + "/v1/"), option.WithAPIKey("key"), option.WithHTTPClient(s.http)}
	if !s.retries {
		options = append(options, option.WithMaxRetries(0))
	}
	return openai.NewClient(options...)
}

func ask(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "model", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

// fakeOpenAI repeats the prompt.
func fakeOpenAI() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		list := make([]map[string]any, models)
		for i := range list {
			list[i] = map[string]any{"id": fmt.Sprintf("model-%0100d", i), "object": "model"}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list})
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, req *http.Request) {
		var asked struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil || len(asked.Messages) != 1 {
			http.Error(w, fmt.Sprint("not a prompt: ", err), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		message := map[string]any{"role": "assistant", "content": asked.Messages[0].Content}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "1", "object": "chat.completion", "choices": []any{map[string]any{"index": 0, "message": message}}})
	})
	return mux
}

// The parts of an answer arrive as the server sends them. The server sends the next
// part only when the part before has arrived.
func TestOpenAIStream(t *testing.T) {
	arrived := make(chan struct{})
	s := newServer(t, func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%d"}}]}`+"\n\n", i)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-arrived:
				case <-req.Context().Done():
					return
				}
			}
			_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
		})
	})
	s.answer(busyUntil(2))
	hc, r := under(t, base(t, newNetwork(t, s.url), false), profile.OpenAI(), nil)
	c := newOpenAI(setup{http: hc, url: s.url})
	stream := c.Chat.Completions.NewStreaming(bounded(t), ask("count"))
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
		arrived <- struct{}{}
	}
	require.NoError(t, stream.Err())
	assert.Equal(t, "012", text)
	assert.Len(t, r.told(), 1, "the early 503")
}
