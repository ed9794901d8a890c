package drill

import (
	"fmt"
	"slices"
	"strings"
)

// All are the drills, in the order in which they are best held.
func All() []Drill {
	return slices.Concat(connectionDrills(), certificateDrills(), documentDrills(), namespaceDrills(), collectorDrills(), restartDrills())
}

// Find returns drills by their names, in the order asked for.
func Find(names ...string) ([]Drill, error) {
	all := All()
	found := make([]Drill, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(d Drill) bool { return d.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no drill is called %q; there are %s", name, strings.Join(namesOf(all), ", "))
		}
		found = append(found, all[i])
	}
	return found, nil
}

func namesOf(drills []Drill) []string {
	out := make([]string, 0, len(drills))
	for _, d := range drills {
		out = append(out, d.Name)
	}
	return out
}
