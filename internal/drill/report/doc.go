// Package report writes down what drills found: a table for people, JSON and JUnit for machines, and a page of HTML with a
// timeline of each drill. All of them are made of the same drill.Result, and judge nothing themselves.
package report
