package kindtest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/columns"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Now is three days and five minutes after Born, the creation time of every object in a table.
var (
	Born = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	Now  = Born.Add(72*time.Hour + 5*time.Minute)
)

// Table prints objects of a kind like `kubectl get -o wide`, after a line with the type, format and priority of each column,
// and compares the output with testdata/KIND.golden.
func Table[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, manifests ...string) {
	t.Helper()
	kind := reflect.TypeFor[T]().Name()
	r, known := resourceOf(P(new(T)))
	if !known {
		t.Fatalf("no kind has objects of %s", kind)
	}
	convertor := rest.NewDefaultTableConvertor(schema.GroupResource{Resource: r.Name})
	if r.Columns != nil {
		convertor = columns.Convertor(r.Columns(), func() time.Time { return Now })
	}
	var objects []runtime.Object
	for _, manifest := range manifests {
		object := P(new(T))
		if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		any(object).(metav1.Object).SetCreationTimestamp(metav1.NewTime(Born))
		objects = append(objects, object)
	}
	Golden(t, kind, convertor, objects...)
}

// Golden prints objects like Table, with the given convertor, and compares the output with testdata/NAME.golden.
func Golden(t *testing.T, name string, convertor rest.TableConvertor, objects ...runtime.Object) {
	t.Helper()
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for i, object := range objects {
		table, err := convertor.ConvertToTable(t.Context(), object, nil)
		if err != nil {
			t.Fatal(err)
		}
		table.DeepCopy() // panics on a cell that cannot be encoded as JSON
		if i == 0 {
			header(w, table.ColumnDefinitions)
		}
		for _, row := range table.Rows {
			if len(row.Cells) != len(table.ColumnDefinitions) {
				t.Fatalf("%d cells for %d columns", len(row.Cells), len(table.ColumnDefinitions))
			}
			if row.Object.Object != object {
				t.Error("a row without its object")
			}
			line(w, row.Cells)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	compare(t, filepath.Join("testdata", name+".golden"), out.Bytes())
}

func header(w *tabwriter.Writer, columns []metav1.TableColumnDefinition) {
	var names, kinds []any
	for _, column := range columns {
		names = append(names, strings.ToUpper(column.Name))
		kinds = append(kinds, strings.TrimSuffix(fmt.Sprintf("%s/%d/%s", column.Type, column.Priority, column.Format), "/"))
	}
	line(w, kinds)
	line(w, names)
}

func line(w *tabwriter.Writer, cells []any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, cell)
	}
	fmt.Fprintln(w)
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
