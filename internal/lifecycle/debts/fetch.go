package debts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/lifecycle/contents"
)

const (
	// inProcessHost stands where a URL needs a host and nobody looks at it.
	inProcessHost = "https://portico.invalid"
	// maxDocument bounds what a backend can say that it serves.
	maxDocument = 4 << 20
	// ahead is how far the Date of an answer may be ahead of our time without meaning anything.
	ahead = 2 * time.Second
)

// fetchResources asks a backend itself which of its resources can hold objects of a namespace and delete them. The merged
// discovery may be a minute old, and says nothing of a backend that was never seen before its debt was made.
// behind is how far the clock of the backend is behind ours.
func fetchResources(ctx context.Context, way http.RoundTripper, gv schema.GroupVersion) (names []string, behind time.Duration, err error) {
	var list metav1.APIResourceList
	err = contents.Bounded(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, inProcessHost+"/apis/"+gv.String(), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", "application/json")
		resp, err := way.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was read, or its error was met
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the backend answered %d", resp.StatusCode)
		}
		behind = clockOf(resp, time.Now())
		return json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(&list)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("ask for the resources of %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		if r.Namespaced && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") {
			names = append(names, r.Name)
		}
	}
	return names, behind, nil
}

// clockOf is how far the clock behind an answer is behind now; zero when it does not say. The Date is cut off at the second
// and took a while to arrive, so that it looks a little further behind than it is: that errs on the side of sparing an
// object, and costs nothing, since the backend was away for longer than that when the debt was made.
func clockOf(resp *http.Response, now time.Time) time.Duration {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0
	}
	behind := now.Sub(date)
	if behind < 0 && behind > -ahead {
		return 0
	}
	return behind
}
