// Package docs runs the commands that README.md and the pages below docs show, as they stand there, and compares what they print.
//
// A block of a page has commands if one of its lines begins with a prompt, or its first line with the name of a program. The commands of a
// page run in one bash, in an empty directory, with the kubeconfig of a front door that is the page's own. A command that runs until it is
// stopped (serve, dev, console) runs in the background until the page ends, on a free port unless the page names one. Commands that
// read are repeated until they print what the page shows.
//
// Comments before a block, which readers of the page do not see, say what the block needs:
//
//	<!-- not run: REASON -->         the block is not run
//	<!-- output varies: REASON -->   it is run, and what it prints is not compared
//	<!-- setup: COMMANDS -->         commands that run before; they may take several lines. "until COMMAND" is repeated until it succeeds, "stop" ends
//	                                 the server that was started last, and "stop PREFIX" the last one whose command begins so
//	<!-- file: NAME -->              the block is the content of this file
//	<!-- with: NAME=VALUE ... -->    from here on, a word of the page stands for something; the value free-port is a port that nobody uses
//
// In what is compared, numbers, times, ages, identifiers and the width of columns do not count, and `...` stands for anything.
package docs
