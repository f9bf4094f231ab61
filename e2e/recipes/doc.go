// Package recipes has the code of docs/recipes.md that needs an SDK. The other code of that
// page is in lab/recipes. kube.go is a link to the file there, because `kube` is shown once and tested with client-go here.
package recipes
