// The clients of providers.

package clients

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/bwmarrin/discordgo"
	"github.com/cloudflare/cloudflare-go"
	"github.com/digitalocean/godo"
	"github.com/slack-go/slack"
	"github.com/stripe/stripe-go/v82"

	"github.com/aplomb-go/aplomb/classify"
	ts "github.com/aplomb-go/aplomb/internal/testserver"
	"github.com/aplomb-go/aplomb/policy/profile"
)

// clients is the order of the rows in docs/clients.md.
func clients() []client {
	return []client{anthropicClient(), stripeClient(), slackClient(), discordClient(), cloudflareClient(), godoClient()}
}

// wanted returns an error if got is not want.
func wanted(err error, got, want string) error {
	if err == nil && got != want {
		return fmt.Errorf("%q, not %q", got, want)
	}
	return err
}

func always(body string) func(*ts.Received) ts.Step {
	return func(*ts.Received) ts.Step { return json(200, body) }
}

const message = `{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`

func anthropicClient() client {
	return client{
		name:  "anthropic-sdk-go",
		off:   "`option.WithMaxRetries(0)`",
		needs: "`profile.Anthropic()`", rule: profile.Anthropic(),
		host:    "api.anthropic.com",
		trouble: `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`,
		good:    always(message),
		open: func(hc *http.Client, retries bool) calls {
			c := newAnthropic(hc, retries)
			return calls{
				read: func(ctx context.Context) error {
					m, err := c.Models.Get(ctx, "m1", anthropic.ModelGetParams{})
					if err != nil {
						return err
					}
					return wanted(nil, m.ID, "m1")
				},
				write: func(ctx context.Context) error {
					m, err := c.Messages.New(ctx, prompt())
					if err != nil {
						return err
					}
					return wanted(nil, m.Content[0].Text, "hello")
				},
				own: asError[*anthropic.Error],
			}
		},
	}
}

func newAnthropic(hc *http.Client, retries bool, options ...option.RequestOption) anthropic.Client {
	options = append(options, option.WithAPIKey("key"), option.WithHTTPClient(hc))
	if !retries {
		options = append(options, option.WithMaxRetries(0))
	}
	return anthropic.NewClient(options...)
}

func prompt() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	}
}

func stripeClient() client {
	return client{
		name:  "stripe-go",
		off:   "`MaxNetworkRetries: stripe.Int64(0)`",
		needs: "`profile.Stripe()`. Its POSTs have keys, so they are repeated", rule: profile.Stripe(),
		keyed:   true,
		endsCut: true, // each of its requests has a body, a GET an empty one
		host:    "api.stripe.com",
		trouble: `{"error":{"type":"api_error","message":"busy"}}`,
		good:    always(`{"id":"pi_1","object":"payment_intent"}`),
		open: func(hc *http.Client, retries bool) calls {
			cfg := &stripe.BackendConfig{HTTPClient: hc, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}}
			if !retries {
				cfg.MaxNetworkRetries = stripe.Int64(0)
			}
			c := stripe.NewClient("key", stripe.WithBackends(stripe.NewBackendsWithConfig(cfg))).V1PaymentIntents
			return calls{
				read: func(ctx context.Context) error {
					p, err := c.Retrieve(ctx, "pi_1", nil)
					if err != nil {
						return err
					}
					return wanted(nil, p.ID, "pi_1")
				},
				write: func(ctx context.Context) error {
					_, err := c.Create(ctx, &stripe.PaymentIntentCreateParams{Amount: stripe.Int64(100)})
					return err
				},
				own: asError[*stripe.Error],
			}
		},
	}
}

func slackClient() client {
	rule := profile.Slack()
	rule.Idempotent = slackReads
	return client{
		name:  "slack-go",
		off:   "off by default",
		needs: "`profile.Slack()` with an `Idempotent` for methods that read, because all calls are POSTs", rule: rule,
		endsCut: true, // all its requests are POSTs
		host:    "slack.com",
		trouble: `{"ok":false,"error":"fatal_error"}`,
		good:    always(`{"ok":true,"ts":"1.0","channel":"C1","channels":[{"id":"C1"}]}`),
		open: func(hc *http.Client, retries bool) calls {
			c := slack.New("token", slack.OptionHTTPClient(hc))
			return calls{
				read: func(ctx context.Context) error {
					channels, _, err := c.GetConversationsContext(ctx, &slack.GetConversationsParameters{})
					if err != nil {
						return err
					}
					return wanted(nil, channels[0].ID, "C1")
				},
				write: func(ctx context.Context) error {
					_, _, err := c.PostMessageContext(ctx, "C1", slack.MsgOptionText("hello", false))
					return err
				},
				own: asError[slack.StatusCodeError],
			}
		},
	}
}

// slackReads says which methods of Slack do not change anything.
func slackReads(req *http.Request) bool {
	method := path.Base(req.URL.Path)
	return strings.HasSuffix(method, ".list") || strings.HasSuffix(method, ".info") || classify.Idempotent(req)
}

func discordClient() client {
	return client{
		name:  "discordgo",
		off:   "`MaxRestRetries = 0`, `ShouldRetryOnRateLimit = false`",
		needs: "`profile.Discord()`", rule: profile.Discord(),
		host:    "discord.com",
		trouble: `{"message":"busy","retry_after":30,"global":false}`,
		good:    always(`{"id":"1"}`),
		open: func(hc *http.Client, retries bool) calls {
			s, _ := discordgo.New("Bot token") // no error is possible
			s.Client = hc
			if !retries {
				s.MaxRestRetries, s.ShouldRetryOnRateLimit = 0, false
			}
			return calls{
				read: func(ctx context.Context) error {
					c, err := s.Channel("1", discordgo.WithContext(ctx))
					if err != nil {
						return err
					}
					return wanted(nil, c.ID, "1")
				},
				write: func(ctx context.Context) error {
					_, err := s.ChannelMessageSend("1", "hello", discordgo.WithContext(ctx))
					return err
				},
				own: asError[*discordgo.RESTError],
			}
		},
	}
}

func cloudflareClient() client {
	return client{
		name:  "cloudflare-go",
		off:   "`cloudflare.UsingRetryPolicy(0, 0, 0)`",
		needs: "`profile.Cloudflare()`", rule: profile.Cloudflare(),
		host:    "api.cloudflare.com",
		trouble: `{"success":false,"errors":[{"code":10429,"message":"busy"}]}`,
		good:    always(`{"success":true,"result":{"id":"z1"}}`),
		open: func(hc *http.Client, retries bool) calls {
			options := []cloudflare.Option{cloudflare.HTTPClient(hc), cloudflare.UsingRateLimit(1e6)}
			if !retries {
				options = append(options, cloudflare.UsingRetryPolicy(0, 0, 0))
			}
			api, _ := cloudflare.NewWithAPIToken("token", options...) // no error is possible
			return calls{
				read: func(ctx context.Context) error {
					z, err := api.ZoneDetails(ctx, "z1")
					return wanted(err, z.ID, "z1")
				},
				write: func(ctx context.Context) error {
					_, err := api.CreateDNSRecord(ctx, cloudflare.ZoneIdentifier("z1"), cloudflare.CreateDNSRecordParams{Type: "A", Name: "a", Content: "192.0.2.1"})
					return err
				},
				own: func(err error) bool { return strings.HasSuffix(err.Error(), "(HTTP 503), please try again later") },
			}
		},
	}
}

func godoClient() client {
	return client{
		name:  "godo",
		off:   "off by default. With `NewFromToken` or `WithRetryAndBackoffs` it throws the `http.Client` away",
		needs: "`profile.API()`", rule: profile.API(),
		host:    "api.digitalocean.com",
		trouble: `{"id":"too_many_requests","message":"busy"}`,
		good:    always(`{"domain":{"name":"example.com"}}`),
		open: func(hc *http.Client, retries bool) calls {
			c := godo.NewClient(hc)
			return calls{
				read: func(ctx context.Context) error {
					d, _, err := c.Domains.Get(ctx, "example.com")
					if err != nil {
						return err
					}
					return wanted(nil, d.Name, "example.com")
				},
				write: func(ctx context.Context) error {
					_, _, err := c.Domains.Create(ctx, &godo.DomainCreateRequest{Name: "example.com"})
					return err
				},
				own: asError[*godo.ErrorResponse],
			}
		},
	}
}
