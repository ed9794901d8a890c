// Package differential asks two servers the same and compares what they answer, field by field. Differences that are known
// are listed with their reasons; a difference that is not listed is a failure, and so is one that is listed and does not
// occur. The same requests are held against recorded facts: see docs/differential.md.
package differential
