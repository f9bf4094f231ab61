package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aplomb-go/aplomb/internal/testserver"
)

// Every library delivers a success once, with its body whole: what is measured
// is a client that works.
func TestLibrariesSend(t *testing.T) {
	for i := range libraries {
		l := &libraries[i]
		t.Run(l.name, func(t *testing.T) {
			const body = "an order"
			o, err := exchange{
				method: http.MethodPost, body: body, steps: script(testserver.OK("thanks")),
			}.run(l)
			if err != nil || o.err != nil || !o.answered {
				t.Fatalf("%s: %v, %v", o.answer(), err, o.err)
			}
			if o.resp.StatusCode != http.StatusOK || o.read != int64(len("thanks")) {
				t.Errorf("answer %d with %d bytes", o.resp.StatusCode, o.read)
			}
			if len(o.log) != 1 || o.log[0].BodySHA256 != testserver.Hash([]byte(body)) {
				t.Errorf("arrived: %+v", o.log)
			}
		})
	}
}

// The table has a cell for each fact and library, in both forms.
func TestTable(t *testing.T) {
	quick := facts[:2]
	filled, err := measure(quick, libraries)
	if err != nil {
		t.Fatal(err)
	}
	var text, markdown strings.Builder
	filled.text(&text)
	filled.markdown(&markdown)
	for i, f := range quick {
		if !strings.Contains(text.String(), f.name) {
			t.Errorf("the text lacks %q", f.name)
		}
		row := "| " + f.name + " | " + strings.Join(filled.cells[i], " | ") + " |\n"
		if !strings.Contains(markdown.String(), row) {
			t.Errorf("the Markdown lacks %q", row)
		}
	}
	if strings.Contains(markdown.String(), "|  |") {
		t.Errorf("an empty cell:\n%s", markdown.String())
	}
}

// A small upload arrives whole and once through every library.
func TestUpload(t *testing.T) {
	for i := range libraries {
		l := &libraries[i]
		t.Run(l.name, func(t *testing.T) {
			if _, err := upload(l, 100<<10); err != nil {
				t.Error(err)
			}
		})
	}
}
