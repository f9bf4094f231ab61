// The command line.

package get

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aplomb-go/aplomb/internal/terminal"
)

// usage fits a terminal of 80 columns and 24 lines.
const usage = `Usage: aplomb get [FLAGS] URL...

Downloads each URL into a file named like the last part of its path. A download
that is cut goes on where it was cut, in the same run or when the same command
is run again, and never mixes two versions of a file. A file of that name is
replaced when the new file is whole. Until then it is NAME.HASH.part.

  -o FILE       write to FILE, or into FILE/ if that is a directory; - is stdout
  -mirrors      the URLs serve one file; the others are asked if the first fails
  -sha256 HEX   the file must have this SHA-256 digest
  -attempts N   at most N attempts of a request, and N starts of a download (6)
  -per-host N   at most N downloads from a host at a time (2)
  -rate N       at most N requests per second to a host (no limit)
  -limit SIZE   at most SIZE bytes per second in all, such as 500K (no limit)
  -stall TIME   a connection that is silent for TIME counts as cut (30s)
  -cacert FILE  trust the CA certificates in FILE (PEM), besides the system's
  -rule FILE    read the rules from FILE (JSON, as in package policy/rulefile)
  -plain        lines instead of bars on a terminal
  -v            tell the story of each request: its attempts, waits and end
  -demo         download from a server in this program, and check the result

Exit status: 0 all files are here, 1 a download failed, 2 the command line is
wrong and nothing was sent, 3 a file was not as announced, 130 interrupted
`

// options is the command line. A zero number or duration was not given.
type options struct {
	output   string
	digest   string // as in Repr-Digest
	rules    string
	caFile   string
	attempts int
	perHost  int
	rate     float64 // requests per second
	limit    float64 // bytes per second
	stall    time.Duration
	mirrors  bool
	plain    bool
	verbose  bool
	demo     bool
	urls     []string
}

// parse reads the command line. Its error names all faults.
func parse(args []string, w world) (options, error) {
	var o options
	var faults []error
	f := flag.NewFlagSet("get", flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error itself
	seen := make(map[string]bool)
	value := func(name string, set func(text string) string) {
		f.Func(name, "", func(text string) error {
			switch wrong := set(text); {
			case seen[name]:
				faults = append(faults, fmt.Errorf("-%s is given twice", name))
			case wrong != "":
				faults = append(faults, fmt.Errorf("-%s %s: %s", name, quoted(text), wrong))
			}
			seen[name] = true
			return nil
		})
	}
	value("o", into(&o.output, textOf, "it must not be empty"))
	value("sha256", into(&o.digest, digestOf, "it must be 64 hexadecimal digits"))
	value("rule", into(&o.rules, textOf, "it must not be empty"))
	value("cacert", into(&o.caFile, textOf, "it must not be empty"))
	value("attempts", into(&o.attempts, countOf, "it must be a whole number of at least 1"))
	value("per-host", into(&o.perHost, countOf, "it must be a whole number of at least 1"))
	value("rate", into(&o.rate, positive, "it must be a number above 0"))
	value("limit", into(&o.limit, bytesOf, "it must be a number of bytes per second, at least 1, such as 500K or 2M"))
	value("stall", into(&o.stall, timeOf, "it must be a time above 0, such as 30s or 2m"))
	f.BoolVar(&o.mirrors, "mirrors", false, "")
	f.BoolVar(&o.plain, "plain", false, "")
	f.BoolVar(&o.verbose, "v", false, "")
	f.BoolVar(&o.demo, "demo", false, "")
	err := parseMixed(f, args, &o.urls)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(w.stdout, usage)
		return o, err
	case err != nil:
		faults = append(faults, err)
	case o.demo && len(o.urls) > 0:
		faults = append(faults, errors.New("-demo takes no URL"))
	case !o.demo && len(o.urls) == 0:
		faults = append(faults, errors.New("no URL"))
	case o.mirrors && len(o.urls) == 1:
		faults = append(faults, errors.New("-mirrors: there is no mirror after the URL"))
	case o.digest != "" && !o.mirrors && len(o.urls) > 1:
		faults = append(faults, errors.New("-sha256: this takes a single file"))
	}
	return o, errors.Join(faults...)
}

// files returns the URLs of each file.
func (o *options) files() [][]string {
	if o.mirrors {
		return [][]string{o.urls}
	}
	return slices.Collect(slices.Chunk(o.urls, 1))
}

// parseMixed parses flags before, between and after the URLs, as curl and wget
// do. After "--" there are only URLs.
func parseMixed(f *flag.FlagSet, args []string, urls *[]string) error {
	for {
		if err := f.Parse(args); err != nil {
			return err
		}
		rest := f.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			*urls = append(*urls, rest...)
			return nil
		}
		*urls = append(*urls, rest[0])
		args = rest[1:]
	}
}

// into returns a function that stores the value that read finds in a text, or says what is
// wrong.
func into[T any](to *T, read func(text string) (T, bool), wrong string) func(string) string {
	return func(text string) string {
		v, ok := read(text)
		*to = v
		if ok {
			return ""
		}
		return wrong
	}
}

func textOf(text string) (string, bool) { return text, text != "" }

// digestOf returns a SHA-256 digest as Repr-Digest has it.
func digestOf(text string) (string, bool) {
	sum, err := hex.DecodeString(text)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":", err == nil && len(sum) == sha256.Size
}

func countOf(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1
}

func timeOf(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

func positive(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && n > 0 && !math.IsInf(n, 0)
}

// bytesOf reads a number of bytes such as 500K or 1.5MiB. The units are powers of
// 1024, with which curl and wget count as well.
func bytesOf(text string) (float64, bool) {
	number := strings.TrimSuffix(strings.TrimSuffix(text, "B"), "i")
	unit := 1.0
	if i := len(number) - 1; i > 0 {
		if power := strings.IndexByte("KMGT", number[i]&^0x20); power >= 0 {
			number, unit = number[:i], math.Pow(1024, float64(power+1))
		}
	}
	n, ok := positive(number)
	n *= unit
	return n, ok && n >= 1 && n <= math.MaxInt64/2
}

// quoted puts a text in quotes if it is not a single word.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, " \"") || terminal.Printable(text) != text {
		return strconv.Quote(text)
	}
	return text
}
