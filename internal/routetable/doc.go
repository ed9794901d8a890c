// Package routetable defines which server serves each group-version, at one moment: an immutable Table of Routes with
// their Options. Package apiservice builds Tables; the router, discovery and OpenAPI read them.
package routetable
