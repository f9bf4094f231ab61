// Package recipes has the code of docs/recipes.md that needs an SDK. The other code of that
// page is in lab/recipes.
package recipes
