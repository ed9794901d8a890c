// Command cves lists the published vulnerabilities in Go's HTTP packages that have no row in a page of our
// documentation. Our implementation may have the same vulnerabilities and must be checked.
//
// It does not access the network: the user downloads the list. It reads
//
//   - the Go vulnerability database in the format of https://vuln.go.dev/vulndb.zip, an extracted directory, or single
//     entries (OSV in JSON);
//   - a plain list of CVE-… and GO-… names, one per line, followed by any text.
//
// The exit status is 0 if the page is complete, 1 if rows are missing, and 2 if an input cannot be read.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// files is a flag that may be repeated.
type files []string

func (f *files) String() string     { return strings.Join(*f, ",") }
func (f *files) Set(v string) error { *f = append(*f, v); return nil }

var errLacks = errors.New("the page lacks rows")

func run(args []string, out, complaints io.Writer) int {
	switch err := list(args, out, complaints); {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errLacks):
		return 1
	default:
		fmt.Fprintln(complaints, err)
		return 2
	}
}

func list(args []string, out, complaints io.Writer) error {
	set := flag.NewFlagSet("cves", flag.ContinueOnError)
	set.SetOutput(complaints)
	var from files
	page := set.String("page", "internal/httpengine/README.md", "the page, with a row | CVE-… | for each")
	set.Var(&from, "file", "vulndb.zip, a directory of it, an entry in JSON, or a plain list; may be given several times")
	format := set.String("o", "text", "text or json")
	since := set.Int("since", 2019, "the first year, by the name of the CVE")
	packages := set.String("packages", strings.Join(ofHTTP, ","), "the packages that matter, with those below them")
	if err := set.Parse(args); err != nil {
		return err
	}
	switch {
	case set.NArg() > 0:
		return fmt.Errorf("%q is no flag: name files with -file", set.Arg(0))
	case len(from) == 0:
		return errors.New("no list was given: download https://vuln.go.dev/vulndb.zip and give -file vulndb.zip")
	case *format != "text" && *format != "json":
		return fmt.Errorf("-o %s: text and json are known", *format)
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	var all []entry
	for _, name := range from {
		entries, err := read(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if len(entries) == 0 {
			return fmt.Errorf("%s has no vulnerabilities: it is neither the database, nor an entry, nor a list of CVE-… names", name)
		}
		all = append(all, entries...)
	}
	lacking := lacks(string(text), all, strings.Split(*packages, ","), *since)
	if err := write(out, *format, lacking); err != nil {
		return err
	}
	if len(lacking) > 0 {
		return errLacks
	}
	return nil
}

func write(out io.Writer, format string, lacking []vulnerability) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(lacking)
	}
	if len(lacking) == 0 {
		_, err := fmt.Fprintln(out, "the page has them all")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PUBLISHED\tID\tALIASES\tPACKAGES\tSUMMARY")
	for _, v := range lacking {
		or := func(s string) string {
			if s == "" {
				return "-"
			}
			return s
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", or(v.Published), v.ID, or(strings.Join(v.Aliases, " ")), or(strings.Join(v.Packages, " ")), or(v.Summary))
	}
	return w.Flush()
}
