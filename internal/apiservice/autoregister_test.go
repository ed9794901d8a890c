package apiservice

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/routetable"
)

// The table of kube-aggregator's autoregister controller, one case for each cell.
func TestDecideMatchesKubeAggregatorTable(t *testing.T) {
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	object := func(label string, groupPriority int32) *apiregistrationv1.APIService {
		o := localAPIService(gv, priority{groupPriority, 15}, label)
		if label == "" {
			o.Labels = nil
		}
		return o
	}
	remote := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.apps"},
		Spec: apiregistrationv1.APIServiceSpec{Group: "apps", Version: "v1", GroupPriorityMinimum: 17800, VersionPriority: 15,
			Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "svc"}},
	}
	onStart, always := object(managedOnStart, 17800), object(managedAlways, 17800)

	for name, test := range map[string]struct {
		current, wanted *apiregistrationv1.APIService
		atStart, done   bool
		want            action
	}{
		"absent and not wanted":                              {nil, nil, false, false, leave},
		"absent and wanted on start":                         {nil, onStart, false, false, create},
		"absent, wanted on start, was there at start":        {nil, onStart, true, false, create},
		"absent and wanted always":                           {nil, always, false, false, create},
		"absent, wanted always, created before":              {nil, always, false, true, create},
		"a built-in one that a user deleted comes back":      {nil, onStart, true, true, create},
		"a user's own is left alone, not wanted":             {object("", 1), nil, true, false, leave},
		"a user's own is left alone, wanted on start":        {object("", 1), onStart, true, false, leave},
		"a user's own is left alone, wanted always":          {object("", 1), always, true, false, leave},
		"a user's own remote one hides a local group":        {remote, always, false, false, leave},
		"a label value that is not ours is not our label":    {object("false", 1), onStart, true, false, leave},
		"on start, made by a newer process, not wanted":      {object(managedOnStart, 1), nil, false, false, leave},
		"on start, made by a newer process, wanted":          {object(managedOnStart, 1), onStart, false, false, leave},
		"on start, made by a newer process, wanted always":   {object(managedOnStart, 1), always, false, false, leave},
		"on start, from before, no longer served":            {object(managedOnStart, 1), nil, true, false, remove},
		"on start, from before, not wanted, dealt with":      {object(managedOnStart, 1), nil, true, true, leave},
		"on start, from before, spec of an older release":    {object(managedOnStart, 1), onStart, true, false, update},
		"on start, from before, edited after we repaired it": {object(managedOnStart, 1), onStart, true, true, leave},
		"on start, from before, now wanted always":           {object(managedOnStart, 1), always, true, false, update},
		"on start, from before, as it should be":             {object(managedOnStart, 17800), onStart, true, false, leave},
		"always, not wanted":                                 {object(managedAlways, 1), nil, false, false, remove},
		"always, not wanted, seen before":                    {object(managedAlways, 1), nil, true, true, remove},
		"always, wanted always, edited":                      {object(managedAlways, 1), always, true, true, update},
		"always, wanted on start":                            {object(managedAlways, 1), onStart, false, false, update},
		"always, wanted on start, dealt with":                {object(managedAlways, 1), onStart, false, true, leave},
		"always, as it should be":                            {object(managedAlways, 17800), always, false, false, leave},
		"always, pointed at a backend by a user":             {labelled(remote, managedAlways), always, false, true, update},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(test.current, test.wanted, test.atStart, test.done); got != test.want {
				t.Errorf("decide() = %v, want %v", got, test.want)
			}
		})
	}
}

func labelled(o *apiregistrationv1.APIService, value string) *apiregistrationv1.APIService {
	o = o.DeepCopy()
	o.Labels = map[string]string{managedLabel: value}
	return o
}

// testdata/priorities.txt is kube-apiserver 1.37's built-in group-versions in the order in which it lists them.
func TestPrioritiesAndOrderMatchKubeAPIServer(t *testing.T) {
	file, err := os.Open("testdata/priorities.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var want []string
	var routes []*routetable.Route
	for lines := bufio.NewScanner(file); lines.Scan(); {
		want = append(want, lines.Text())
		gv, err := schema.ParseGroupVersion(strings.Fields(lines.Text())[2])
		if err != nil {
			t.Fatal(err)
		}
		p, ok := priorityFor(gv)
		if !ok {
			t.Errorf("priorityFor(%s) found none, want a priority", gv)
		}
		routes = append(routes, &routetable.Route{GroupVersion: gv, Name: apiServiceName(gv), GroupPriority: p.group, VersionPriority: p.version})
	}
	rand.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
	for i, r := range routetable.NewTable(routes, true).Routes() {
		if got := fmt.Sprint(r.GroupPriority, r.VersionPriority, " ", r.GroupVersion); got != want[i] {
			t.Errorf("place %d: got %q, want %q", i, got, want[i])
		}
	}
}

func TestUnknownGroupVersionsHaveNoPriority(t *testing.T) {
	for _, gv := range []schema.GroupVersion{{Group: "example.com", Version: "v1"}, {Group: "apps", Version: "v9"}, ownGroupVersion} {
		if p, ok := priorityFor(gv); ok {
			t.Errorf("priorityFor(%s) = %v, want none", gv, p)
		}
	}
}
