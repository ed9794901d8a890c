package audit

import (
	"encoding/json"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/randfill"
)

// library returns the encoding of k8s.io/apiserver, which appendEvent must reproduce.
func library(t *testing.T, e *auditinternal.Event) string {
	t.Helper()
	var out auditv1.Event
	if err := auditv1.Convert_audit_Event_To_v1_Event(e.DeepCopy(), &out, nil); err != nil {
		t.Fatal(err)
	}
	out.Kind, out.APIVersion = "Event", auditv1.SchemeGroupVersion.String()
	line, err := json.Marshal(&out)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

func TestEventEncodingMatchesAPIServer(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 11, 21, 9, 8, 7, 123456789, time.FixedZone("x", 3600)))
	for name, e := range map[string]*auditinternal.Event{
		"empty":        {},
		"status alone": {ResponseStatus: &metav1.Status{Code: 200}},
		"hostile": {
			RequestURI: "/a?b=\"<&>\u2028\\\x7f\xff", UserAgent: "\x00\n", Verb: "gét",
			User: authnv1.UserInfo{Username: "\u2029", Extra: map[string]authnv1.ExtraValue{"k<": {"v&"}, "none": nil, "empty": {}, "b": {"1", "2"}}},
		},
		"far from now": {
			RequestReceivedTimestamp: metav1.NewMicroTime(time.Date(10_000, 1, 2, 3, 4, 5, 6000, time.UTC)),
			StageTimestamp:           metav1.NewMicroTime(time.Date(12, 1, 2, 3, 4, 5, 999_999_999, time.UTC)),
		},
		"whole": {
			Level: "Metadata", AuditID: "a", Stage: "Panic", RequestURI: "/x", Verb: "get", SourceIPs: []string{"10.0.0.1", "::1"},
			User:                     authnv1.UserInfo{Username: "u", UID: "1", Groups: []string{"g", "h"}},
			ImpersonatedUser:         &authnv1.UserInfo{Username: "i"},
			AuthenticationMetadata:   &auditinternal.AuthenticationMetadata{ImpersonationConstraint: "c"},
			ObjectRef:                &auditinternal.ObjectReference{Name: "n", APIGroup: "g", APIVersion: "v1"},
			ResponseStatus:           &metav1.Status{Status: "Failure", Message: "m", Reason: "r", Code: 500},
			RequestReceivedTimestamp: at, StageTimestamp: at, Annotations: map[string]string{"b": "2", "a": "1"},
		},
		"empty parts": {
			ImpersonatedUser: &authnv1.UserInfo{}, AuthenticationMetadata: &auditinternal.AuthenticationMetadata{},
			ObjectRef: &auditinternal.ObjectReference{}, ResponseStatus: &metav1.Status{}, Annotations: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !isSimple(e) {
				t.Fatal("isSimple = false, want true")
			}
			if got, want := string(appendEvent(nil, e, nil)), library(t, e); got != want {
				t.Errorf("encoded event differs from k8s.io/apiserver's, want equal text: %s", diff.Diff(got, want))
			}
		})
	}
	filler := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).Funcs(
		func(o **runtime.Unknown, _ randfill.Continue) { *o = nil },
		func(m *metav1.MicroTime, c randfill.Continue) {
			*m = metav1.NewMicroTime(time.Unix(c.Int63n(1<<32), c.Int63n(1e9)))
		},
	)
	for range 2000 {
		e := &auditinternal.Event{}
		filler.Fill(e)
		if s := e.ResponseStatus; s != nil {
			e.ResponseStatus = &metav1.Status{Status: s.Status, Message: s.Message, Reason: s.Reason, Code: s.Code}
		}
		if got, want := string(appendEvent(nil, e, nil)), library(t, e); got != want {
			t.Fatalf("encoded event differs from k8s.io/apiserver's, want equal text: %s", diff.Diff(got, want))
		}
	}
}

// Separate annotations are encoded as annotations of the event, whether it has annotations or not.
func TestSeparateAnnotationsAreEncodedAsEventAnnotations(t *testing.T) {
	more := []Annotation{{"a", `by "x\y" <z>`}, {"b", ""}, {"c", "3"}}
	for name, e := range map[string]*auditinternal.Event{
		"none of its own":    {AuditID: "1"},
		"some of its own":    {AuditID: "1", Annotations: map[string]string{"b": "2", "c": "old"}},
		"not of common form": {AuditID: "1", RequestObject: &runtime.Unknown{Raw: []byte(`{}`), ContentType: runtime.ContentTypeJSON}},
	} {
		t.Run(name, func(t *testing.T) {
			with := e.DeepCopy()
			if with.Annotations == nil {
				with.Annotations = map[string]string{}
			}
			with.Annotations["a"], with.Annotations["c"] = more[0].Value, more[2].Value
			before := e.DeepCopy()
			got, err := encode(nil, e, more)
			if err != nil {
				t.Fatal(err)
			}
			if want := library(t, with); string(got) != want {
				t.Errorf("event with separate annotations differs, want equal text: %s", diff.Diff(string(got), want))
			}
			if len(e.Annotations) != len(before.Annotations) || e.Annotations["c"] != before.Annotations["c"] {
				t.Errorf("annotations of the event = %v, want %v: later stages use them", e.Annotations, before.Annotations)
			}
		})
	}
}
