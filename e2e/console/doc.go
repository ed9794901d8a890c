// Package console opens the page of `kubectl portico console` in a real Chromium. Its tests have the build tag chromium, since they need one;
// with SCREENSHOTS=DIR they leave pictures of every view there, to be looked at.
package console
