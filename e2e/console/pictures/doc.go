// Package pictures compares the page of `kubectl portico console` with stored pictures, and with the requirements of
// screen readers. Its tests need a Chromium, and therefore the build tag chromium:
//
//	go test -tags chromium ./e2e/console/pictures
//
// With -update they write the pictures in testdata. SCREENSHOTS=DIR stores the pictures in full size.
package pictures
