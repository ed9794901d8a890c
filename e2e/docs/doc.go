// Package docs runs the commands in README.md and the pages below docs, exactly as the pages show them, and compares their
// output.
//
// A block of a page has commands if one of its lines begins with a prompt, or its first line with the name of a program. The
// commands of a page run in one bash, in an empty directory, with the kubeconfig of a front door for this page. A command that
// runs until it is stopped (serve, dev, front, console) runs in the background until the page ends, on a free port unless the page names
// one. Commands that read are repeated until their output matches the page.
//
// Comments before a block, which are invisible to readers of the page, configure the block:
//
//	<!-- not run: REASON -->         the block is not run
//	<!-- output varies: REASON -->   it is run, and its output is not compared
//	<!-- setup: COMMANDS -->         commands that run before the block, on one or more lines. "until COMMAND" is repeated until it
//	                                 succeeds, "stop" stops the last started server, and "stop PREFIX" the last server with a
//	                                 command that has this prefix
//	<!-- file: NAME -->              the block is the content of this file
//	<!-- with: NAME=VALUE ... -->    from here on, a word of the page is replaced with a value; the value free-port is a free port
//
// The comparison ignores numbers, times, ages, identifiers and the width of columns. `...` matches any text.
package docs
