// Package known is the list of differences between two servers that there is a reason for.
//
// A difference that is not listed is a failure, and so is an entry of the list that explains none: the list says what is
// true today.
package known
