// Package page tests the page of package debug in a browser.
//
//	go -C lab test ./page
//	APLOMB_PICTURES=DIRECTORY go -C lab test ./page    # writes pictures of the page as well
package page
