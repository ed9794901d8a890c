package routetable

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnnotationsSetOptions(t *testing.T) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        Options
		wrong       []string // prefixes of the complaints
	}{
		{name: "none"},
		{name: "somebody else's", annotations: map[string]string{"example.com/max-inflight": "nonsense"}},
		{
			name: "all",
			annotations: map[string]string{
				MaxInFlightAnnotation: " 25 ", LongRunningAnnotation: "console, portforward,console,",
				RejectSendInitialEventsAnnotation: "true", ConvertAnnotation: "metadata,table",
				NonPersistentAnnotation: "true", FinalizeAfterAnnotation: "1h30m",
				DiscoveryWhenUnavailableAnnotation: " current",
			},
			want: Options{
				MaxInFlight: 25, LongRunningSubresources: []string{"console", "portforward"},
				InitialEvents: InitialEventsReject, ConvertTable: true, ConvertMetadata: true,
				NonPersistent: true, FinalizeAfter: 90 * time.Minute,
				CurrentWhenUnavailable: true,
			},
		},
		{name: "a wait without a unit", annotations: map[string]string{FinalizeAfterAnnotation: "10"}, wrong: []string{FinalizeAfterAnnotation + `: "10" is not a duration`}},
		{name: "a wait that is none", annotations: map[string]string{FinalizeAfterAnnotation: "0s"}, wrong: []string{FinalizeAfterAnnotation}},
		{name: "a wait into the past", annotations: map[string]string{FinalizeAfterAnnotation: "-10m"}, wrong: []string{FinalizeAfterAnnotation}},
		{name: "a wait of a lifetime", annotations: map[string]string{FinalizeAfterAnnotation: "1000000h"}, wrong: []string{FinalizeAfterAnnotation}},
		{name: "neither persistent nor not", annotations: map[string]string{NonPersistentAnnotation: "maybe"}, wrong: []string{NonPersistentAnnotation}},
		{name: "persistent", annotations: map[string]string{NonPersistentAnnotation: " false"}, want: Options{Persistent: true}},
		{name: "a freshness that there is not", annotations: map[string]string{DiscoveryWhenUnavailableAnnotation: "fresh"}, wrong: []string{DiscoveryWhenUnavailableAnnotation + `: "fresh" is neither current nor stale`}},
		{name: "switched off", annotations: map[string]string{DiscoveryWhenUnavailableAnnotation: "stale", RejectSendInitialEventsAnnotation: "false", ConvertAnnotation: "", LongRunningAnnotation: " , "}},
		{name: "initial events are passed on", annotations: map[string]string{InitialEventsAnnotation: "pass"}, want: Options{InitialEvents: InitialEventsPass}},
		{name: "initial events are rejected", annotations: map[string]string{InitialEventsAnnotation: " reject "}, want: Options{InitialEvents: InitialEventsReject}},
		{name: "initial events are made", annotations: map[string]string{InitialEventsAnnotation: "make"}, want: Options{InitialEvents: InitialEventsMake}},
		{name: "the newer name takes precedence", annotations: map[string]string{InitialEventsAnnotation: "auto", RejectSendInitialEventsAnnotation: "true"}},
		{
			name:        "a mistake in the newer name",
			annotations: map[string]string{InitialEventsAnnotation: "Reject", RejectSendInitialEventsAnnotation: "true"},
			want:        Options{InitialEvents: InitialEventsReject},
			wrong:       []string{InitialEventsAnnotation + `: "Reject" is none of auto, pass, reject and make`},
		},
		{name: "a limit of nothing", annotations: map[string]string{MaxInFlightAnnotation: "0"}, wrong: []string{MaxInFlightAnnotation}},
		{name: "a limit below nothing", annotations: map[string]string{MaxInFlightAnnotation: "-3"}, wrong: []string{MaxInFlightAnnotation}},
		{name: "a limit beyond reason", annotations: map[string]string{MaxInFlightAnnotation: "99999999999999999999"}, wrong: []string{MaxInFlightAnnotation}},
		{name: "a limit that is no number", annotations: map[string]string{MaxInFlightAnnotation: "many"}, wrong: []string{MaxInFlightAnnotation + `: "many"`}},
		{
			name:        "a path among the subresources",
			annotations: map[string]string{LongRunningAnnotation: "../secrets,console"},
			want:        Options{LongRunningSubresources: []string{"console"}},
			wrong:       []string{LongRunningAnnotation},
		},
		{
			name:        "one slip does not spoil the rest",
			annotations: map[string]string{ConvertAnnotation: "tables,metadata", RejectSendInitialEventsAnnotation: "yes", MaxInFlightAnnotation: "7"},
			want:        Options{MaxInFlight: 7, ConvertMetadata: true},
			wrong:       []string{RejectSendInitialEventsAnnotation, ConvertAnnotation},
		},
		{
			name:        "a value without end",
			annotations: map[string]string{MaxInFlightAnnotation: strings.Repeat("9", 100_000)},
			wrong:       []string{MaxInFlightAnnotation},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, wrong := ParseOptions(c.annotations)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("ParseOptions(%v) = %+v, want %+v", c.annotations, got, c.want)
			}
			if len(wrong) != len(c.wrong) {
				t.Fatalf("%d complaints %q, want %d", len(wrong), wrong, len(c.wrong))
			}
			for i, w := range wrong {
				if !strings.HasPrefix(w, c.wrong[i]) || len(w) > 300 {
					t.Errorf("complaint = %q, want the prefix %q and at most 300 bytes", w, c.wrong[i])
				}
			}
		})
	}
}

func TestMetricsGroupsStoreNothing(t *testing.T) {
	for _, tt := range []struct {
		group      string
		annotation string
		want       bool
	}{
		{group: "metrics.k8s.io", want: true},
		{group: "custom.metrics.k8s.io", want: true},
		{group: "external.metrics.k8s.io", want: true},
		{group: "metrics.k8s.io", annotation: "true", want: true},
		{group: "metrics.k8s.io", annotation: "maybe", want: true},
		{group: "metrics.k8s.io", annotation: "false", want: false},
		{group: "shop.example.com", want: false},
		{group: "metrics.example.com", want: false},
		{group: "", want: false},
	} {
		annotations := map[string]string{}
		if tt.annotation != "" {
			annotations[NonPersistentAnnotation] = tt.annotation
		}
		options, _ := ParseOptions(annotations)
		route := &Route{GroupVersion: schema.GroupVersion{Group: tt.group, Version: "v1"}, Options: options}
		if got := route.HasReadOnlyDefinition(); got != tt.want {
			t.Errorf("HasReadOnlyDefinition() of group %q with annotation %q = %v, want %v", tt.group, tt.annotation, got, tt.want)
		}
	}
}
