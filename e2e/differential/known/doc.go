// Package known contains the list of justified differences between two servers.
//
// A difference that is not listed is a failure, and so is an entry of the list that explains none, so that the list
// is always current.
package known
