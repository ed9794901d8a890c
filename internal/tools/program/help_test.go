package program

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var errUsage = errors.New("usage")

// newProgram returns a program with a command of every form: with and without subcommands, flags and an error of its own.
func newProgram() *cobra.Command {
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "program"}
	serve := &cobra.Command{Use: "serve", Args: cobra.NoArgs, RunE: run}
	serve.Flags().String("kubeconfig", "", "file")
	serve.Flags().String("kubeconfik", "", "file")
	_ = serve.Flags().MarkHidden("kubeconfik")
	check := &cobra.Command{Use: "check", Args: cobra.NoArgs, RunE: run}
	check.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errors.Join(errUsage, err) })
	check.PersistentFlags().Bool("verbose", false, "print more")
	check.AddCommand(&cobra.Command{Use: "names", RunE: run})
	member := &cobra.Command{Use: "member"}
	member.AddCommand(&cobra.Command{Use: "list", RunE: run}, &cobra.Command{Use: "hidden", Hidden: true, RunE: run})
	root.AddCommand(serve, check, member, &cobra.Command{Use: "version", RunE: run})
	Prepare(root, Group{"Serve", []string{"serve", "member", "absent"}}, Group{"Absent", []string{"absent"}}, Group{"Check", []string{"check"}})
	return root
}

func execute(args ...string) (string, error) {
	var out bytes.Buffer
	root := newProgram()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestMisspelledCommandsAndFlagsAreCorrected(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"sevre", "unknown command \"sevre\" for \"program\"; did you mean serve? `program --help` lists the commands"},
		{"colour", "unknown command \"colour\" for \"program\"; `program --help` lists the commands"},
		{"member lst", "unknown command \"lst\" for \"program member\"; did you mean list? `program member --help` lists the commands"},
		{"member hiden", "unknown command \"hiden\" for \"program member\"; `program member --help` lists the commands"},
		{"check nmes", "unknown command \"nmes\" for \"program check\"; did you mean names? `program check --help` lists the commands"},
		{"serve --kubeconfg x", "unknown flag: --kubeconfg; did you mean --kubeconfig? `program serve --help` lists the flags"},
		{"serve --colour", "unknown flag: --colour; `program serve --help` lists the flags"},
		{"serve -k", "unknown shorthand flag: 'k' in -k; `program serve --help` lists the flags"},
		{"serve --kubeconfig", "flag needs an argument: --kubeconfig"},
		{"check names --verbos", "usage\nunknown flag: --verbos; did you mean --verbose? `program check names --help` lists the flags"},
		{"--vrsion", "unknown flag: --vrsion; `program --help` lists the flags"},
	} {
		_, err := execute(strings.Fields(c.args)...)
		if err == nil || err.Error() != c.want {
			t.Errorf("program %s: error = %v, want %s", c.args, err, c.want)
		}
	}
}

func TestHelpShowsCommandsInGroups(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}} {
		out, err := execute(args...)
		const want = `Usage:
  program
  program [command]

Serve:
  member      
  serve       

Check:
  check       

Other:
  completion  Generate the autocompletion script for the specified shell
  help        Help about any command
  version     

Flags:
  -h, --help   help for program
`
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("program %s = %v:\n%s\nwant\n%s", args, err, out, want)
		}
	}
}

func TestCommandOfCommandsPrintsItsHelp(t *testing.T) {
	out, err := execute("member")
	if err != nil || !strings.Contains(out, "list") || strings.Contains(out, "hidden") {
		t.Errorf("program member = %q, %v; want its help without hidden commands", out, err)
	}
}

func TestCommandNamesAreCompletedWithoutFileNames(t *testing.T) {
	for typed, want := range map[string]string{"se": "serve\n:4\n", "member ": "list\n:4\n"} {
		out, err := execute(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(typed, " ")...)...)
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%q is completed to %q, %v; want %q", typed, out, err, want)
		}
	}
}
