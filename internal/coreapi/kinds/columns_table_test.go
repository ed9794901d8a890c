package kinds_test

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/kinds/core"
)

func convertorOf(kind schema.GroupKind) rest.TableConvertor { return convertorAt(kind, time.Now) }

// convertorAt returns the table convertor of a kind: the one for its columns or the one of k8s.io/apiserver.
func convertorAt(kind schema.GroupKind, now func() time.Time) rest.TableConvertor {
	switch kind.Kind {
	case "Scale":
		return columns.Convertor(columns.ScaleColumns(), now)
	case "ComponentStatus":
		return columns.Convertor(core.ComponentStatusColumns(), now)
	}
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if g.Version.Group == kind.Group && r.Singular == strings.ToLower(kind.Kind) && r.Columns != nil {
				return columns.Convertor(r.Columns(), now)
			}
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	return rest.NewDefaultTableConvertor(plural.GroupResource())
}
