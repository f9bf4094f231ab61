package fleet

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// passInPieces passes a text byte by byte. In the middle of a text of many megabytes the pieces
// are longer.
func passInPieces(r *replies, text string) bool {
	ok := true
	for at, n := 0, 0; at < len(text); at += n {
		if n = 1; at > 1000 && len(text)-at > 1_000_000 {
			n = 997
		}
		ok = r.pass([]byte(text[at:at+n])) && ok
	}
	return ok
}

func TestRepliesAreBounded(t *testing.T) {
	many := "*100000\r\n" + strings.Repeat(":1\r\n", 100000)
	for name, text := range map[string]string{
		"status": "+OK\r\n", "error": "-ERR no\r\n", "number": ":5\r\n", "nil": "$-1\r\n", "nil list": "*-1\r\n",
		"text": "$5\r\na\r\nbc\r\n", "empty": "$0\r\n\r\n", "no elements": "*0\r\n",
		"nested": "*3\r\n$1\r\na\r\n*2\r\n:1\r\n*1\r\n$1\r\nb\r\n$1\r\nc\r\n", "map": "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "push": ">2\r\n$1\r\na\r\n#t\r\n", "many": many, "long": "$4000000\r\n" + strings.Repeat("x", 4000000) + "\r\n",
	} {
		var whole, bytewise replies
		for range 3 { // the bound is for a single reply
			require.True(t, whole.pass([]byte(text)), name)
			require.True(t, passInPieces(&bytewise, text), name)
		}
		require.Equal(t, replies{line: whole.line}, whole, name)
	}
	for _, text := range []string{
		"$1000000000000\r\n", "$5000000\r\n", "*1000000000\r\n", "*300000\r\n", "*9223372036854775807\r\n", "*-2\r\n", "$-5\r\n", "$x\r\n", "*\r\n",
		"%1000000\r\n", "~1000000\r\n", ">1000000\r\n", "|1\r\n", "\r\n", "$?\r\n", "+" + strings.Repeat("x", 5<<20), "-" + strings.Repeat("x", 5<<20) + "\r\n",
		strings.Repeat("*4096\r\n", 64), "*3\r\n$2000000\r\n" + strings.Repeat("x", 2000000) + "\r\n$2200000\r\n",
	} {
		var whole, bytewise replies
		require.False(t, whole.pass([]byte(text)), "%.20q", text)
		passInPieces(&bytewise, text)
		require.True(t, bytewise.bad, "%.20q", text)
	}
}

// A server that names a size that does not fit into memory ends the connection, and nothing
// else.
func TestHugeReply(t *testing.T) {
	for _, reply := range []string{"*9000000000000000000\r\n", "$9000000000000000\r\n", "*200000000\r\n"} {
		lines := &logLines{}
		c := options(t, refusing(t, reply))
		c.Logger = lines.logger()
		start(t, c)
		eventually(t, func() bool { return lines.count("larger than 4 MiB") >= 1 }, "%v", lines)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:1\r\n"), 3)
	f.Fuzz(func(t *testing.T, p []byte, at int) {
		var whole, parts replies
		at = max(0, min(at, len(p)))
		ok := whole.pass(p)
		require.Equal(t, ok, parts.pass(p[:at]) && parts.pass(p[at:]))
		require.LessOrEqual(t, len(whole.line), maxWord)
		require.True(t, !ok || whole.size <= maxReply && whole.skip <= maxReply+2)
	})
}
