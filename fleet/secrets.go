package fleet

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

// A hash returns the HMAC-SHA256 of a text. It is a closure and the only thing that knows the
// key, so that no format prints the key.
type hash func(text string) []byte

// newHash returns the hash with a key.
func newHash(key []byte) hash {
	key = append([]byte(nil), key...)
	return func(text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
}

// scope returns the first 64 bits of the hash of a text, and 0 for no text.
func (h hash) scope(text string) uint64 {
	if text == "" {
		return 0
	}
	return max(1, binary.BigEndian.Uint64(h(text)))
}

// Format prints a Config without its secrets.
func (c Config) Format(s fmt.State, _ rune) {
	text := fmt.Sprintf("fleet.Config{%s}", c.LogValue())
	// An error of the writer is that of the caller of fmt, who gets it there.
	_, _ = io.WriteString(s, text)
}

// LogValue returns a Config without its secrets.
func (c Config) LogValue() slog.Value {
	var addrs []string
	if c.Redis != nil {
		for _, addr := range c.Redis.Addrs {
			if !isAddress(addr) {
				addr = "…"
			}
			addrs = append(addrs, addr)
		}
	}
	return slog.GroupValue(slog.Any("Addrs", addrs), slog.String("Prefix", c.Prefix))
}

// Format prints the state of the Fleet, without secrets.
func (f *Fleet) Format(s fmt.State, _ rune) {
	// See Format of Config.
	_, _ = fmt.Fprintf(s, "fleet.Fleet{%+v}", f.state())
}

// LogValue returns what Format prints.
func (f *Fleet) LogValue() slog.Value { return slog.AnyValue(f.state()) }

// hidden are the passwords that were sent to Redis. An error of Redis may repeat them.
type hidden struct {
	mu    sync.Mutex // guards words
	words []string   // the last few
}

// maxHidden bounds the passwords that are remembered, because a CredentialsProvider may
// return another each time.
const maxHidden = 16

func (h *hidden) add(word string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if word == "" || slices.Contains(h.words, word) {
		return
	}
	if len(h.words) >= maxHidden {
		h.words = h.words[1:]
	}
	h.words = append(h.words, word)
}

// reason returns the text of an error without passwords. Redis repeats the arguments of a
// command that it does not know, and AUTH may be such a command. The text can be printed,
// because a log may print a message as it is.
func (h *hidden) reason(err error) string {
	text, _, cut := strings.Cut(err.Error(), "with args beginning with")
	if cut {
		text += "…"
	}
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, w := range h.words {
			text = strings.ReplaceAll(text, w, "…")
		}
	}
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return terminal.Printable(text)
}

// withoutSecrets returns options that note each password before it is sent.
func withoutSecrets(o redis.UniversalOptions) (redis.UniversalOptions, *hidden) {
	h := &hidden{}
	h.add(o.Password)
	h.add(o.SentinelPassword)
	if provider := o.CredentialsProvider; provider != nil {
		o.CredentialsProvider = func() (string, string) {
			name, word := provider()
			h.add(word)
			return name, word
		}
	}
	if provider := o.CredentialsProviderContext; provider != nil {
		o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			name, word, err := provider(ctx)
			h.add(word)
			return name, word, err
		}
	}
	return o, h
}
