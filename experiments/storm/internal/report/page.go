package report

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"github.com/aplomb-go/aplomb/experiments/storm/internal/record"
)

// Write writes the page and its pictures into a directory, which it makes if it is
// missing. It returns the names of the files.
func Write(dir, title string, runs []*record.Run) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	page, err := page(title, runs)
	if err != nil {
		return nil, err
	}
	// The README has two charts: the successes of the clients, and the requests
	// in progress at the server.
	s := sheet{title, runs, []panel{goodput(runs), progress(runs)}}
	lightSVG, err := s.svg(light)
	if err != nil {
		return nil, err
	}
	darkSVG, err := s.svg(dark)
	if err != nil {
		return nil, err
	}
	png, err := s.png()
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"storm.html", page}, {"storm-light.svg", lightSVG}, {"storm-dark.svg", darkSVG}, {"storm.png", png},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.data, 0o666); err != nil {
			return files, err
		}
		files = append(files, path)
	}
	return files, nil
}

func page(title string, runs []*record.Run) ([]byte, error) {
	type chart struct {
		About string
		SVG   template.HTML
	}
	type entry struct {
		Name, Rule string
		Cells      []string
		Class      string
	}
	data := struct {
		Title          string
		Columns, Notes []string
		Runs           []entry
		Charts         []chart
		Light, Dark    template.CSS
	}{Title: title, Columns: columns, Notes: explained}
	for i, r := range runs {
		data.Runs = append(data.Runs, entry{r.Name, r.Rule, row(r)[1:], fmt.Sprintf("k%d", line(i))})
	}
	for i, p := range panels(runs) {
		s := sheet{panels: []panel{p}}
		if i == 0 {
			s.runs = runs
		}
		svg, err := s.svg(variable)
		if err != nil {
			return nil, err
		}
		at := bytes.Index(svg, []byte("<svg")) // without the XML declaration
		data.Charts = append(data.Charts, chart{p.about, template.HTML(svg[at:])})
	}
	data.Light, data.Dark = theme(light), theme(dark)
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, data)
	return b.Bytes(), err
}

// theme lists the colours for the style sheet.
func theme(as func(role) string) template.CSS {
	var b strings.Builder
	for r := range roles {
		fmt.Fprintf(&b, "--c%d:%s;", r, as(role(r)))
	}
	return template.CSS(b.String())
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{{.Title}}</title>
<style>
:root { {{.Light}} }
@media (prefers-color-scheme: dark) { :root { {{.Dark}} } }
body { background: var(--c0); color: var(--c1); font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
td { white-space: nowrap; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--c2); text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td:first-child::before { content: ""; display: inline-block; width: .7em; height: .7em; margin-right: .5em; background: var(--key); }
{{range .Runs}}.{{.Class}} { --key: var(--c{{slice .Class 1}}); }
{{end}}figure { margin: 0; overflow-x: auto; } svg { display: block; width: 100%; min-width: 36rem; height: auto; }
code { font-size: .85rem; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
<div class="wide"><table>
<thead><tr>{{range .Columns}}<th scope="col">{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Runs}}<tr><td class="{{.Class}}">{{.Name}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody>
</table></div>
<ul>
{{range .Notes}}<li>{{.}}</li>
{{end}}</ul>
<h2>Over time</h2>
{{range .Charts}}<figure role="img" aria-label="{{.About}}">{{.SVG}}</figure>
{{end}}<h2>The rules</h2>
<dl>
{{range .Runs}}<dt>{{.Name}}</dt><dd><code>{{.Rule}}</code></dd>
{{end}}</dl>
</body>
</html>
`))
