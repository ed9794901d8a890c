// Package routetable is who serves each group-version, at one moment: an immutable Table of Routes with their Options. Package apiservice makes
// Tables; the router, discovery and OpenAPI read them.
package routetable
