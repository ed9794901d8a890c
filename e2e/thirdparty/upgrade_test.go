package thirdparty

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/compat"
)

const (
	upgradeTrust     = "the server's check of the client certificate, X-Remote-User and X-Remote-Group"
	upgradeRights    = "delegated authorization by a SubjectAccessReview in protobuf"
	upgradeAction    = "an action: PUT without a body; the response is 202 without a body"
	upgradeDiscovery = "legacy discovery only, with subresources only"
	upgradeOpenAPI   = "OpenAPI v2 only: the front door converts it to a v3 document"
	upgradeRefused   = "an upgrade that the server refuses: its 409 reaches the client"
	upgradeConsole   = "a WebSocket console that is idle for three times the request timeout and still works"
)

// patience is the request timeout of the front door of the consoles, in place of the usual minute.
const patience = 5 * time.Second

const upgradeGroup = "subresources.vm.example.com"

var (
	upgradeV1 = schema.GroupVersion{Group: upgradeGroup, Version: "v1"}
	plain     = scheme.Codecs.WithoutConversion()
)

var upgrader = &compat.Party{
	Name: "a server like KubeVirt's virt-api", Version: "(ours)",
	Is: "virt-api itself needs a cluster. This server of about a hundred lines uses a front door in the same way.",
	Steps: life(
		compat.Step{What: upgradeTrust}, compat.Step{What: upgradeRights}, compat.Step{What: upgradeAction}, compat.Step{What: upgradeDiscovery},
		compat.Step{What: upgradeOpenAPI}, compat.Step{What: upgradeRefused}, compat.Step{What: upgradeConsole},
	),
}

func newUpgrader(t *testing.T, d *frontDoor) *third {
	s := newThird(t, d, upgrader, "consoles", []rbacv1.PolicyRule{{
		APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"},
	}}, upgradeV1)
	s.runner = &consoles{third: s}
	s.serves = func(ctx context.Context, config *rest.Config) error { return act(ctx, config, "running") }
	return s
}

const machines = "/apis/" + upgradeGroup + "/v1/namespaces/default/virtualmachineinstances/"

// act pauses a machine.
func act(ctx context.Context, config *rest.Config, name string) error {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer, config.GroupVersion, config.APIPath = plain, &upgradeV1, "/apis"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	code := 0
	err = client.Put().AbsPath(machines + name + "/pause").Do(ctx).StatusCode(&code).Error()
	if err == nil && code != http.StatusAccepted {
		err = fmt.Errorf("answered %d", code)
	}
	return err
}

func exerciseUpgrader(t *testing.T, s *third) {
	d, server := s.frontDoor, s.runner.(*consoles)
	step := func(what string, run func(t *testing.T)) { book.Step(t, upgrader, what, run) }
	s.awaitAvailable(t)
	step(upgradeTrust, func(t *testing.T) {
		if code, body, err := s.direct(t.Context(), newAuthority(t, "a stranger"), machines+"running/pause"); err != nil || code != http.StatusUnauthorized {
			t.Errorf("GET with the certificate of another authority = %d %s, %v; want 401", code, body, err)
		}
		if code, body, err := s.directAs(t.Context(), d.proxyCA, machines+"running/pause", "somebody", ""); err != nil || code != http.StatusInternalServerError {
			t.Errorf("GET without a group = %d %s, %v; want 500", code, body, err)
		}
		newUser := must[*rest.Config](t)(d.named("jane", users, "another"))
		if err := act(t.Context(), newUser, "running"); err != nil {
			t.Error(err)
		}
		if got, want := server.lastCaller(), "jane in another, system:authenticated, "+users; got != want {
			t.Errorf("it was called by %q, want %q", got, want)
		}
	})
	step(upgradeRights, func(t *testing.T) {
		if got := server.reviewType(); got != runtime.ContentTypeProtobuf {
			t.Errorf("media type of the access review = %q, want protobuf", got)
		}
		code, body, err := s.directAs(t.Context(), d.proxyCA, machines+"running/pause", "nobody", "nobodies")
		if err != nil || code != http.StatusForbidden {
			t.Errorf("GET by a user without rights = %d %s, %v; want 403", code, body, err)
		}
	})
	step(upgradeAction, func(t *testing.T) {
		if err := act(t.Context(), d.config, "running"); err != nil {
			t.Error(err)
		}
	})
	step(upgradeDiscovery, func(t *testing.T) {
		list, err := d.typed.Discovery().ServerResourcesForGroupVersion(upgradeV1.String())
		if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "virtualmachineinstances/console" }) {
			t.Errorf("resources of the group-version = %v, %v; want the subresource console", list, err)
		}
		groups, err := d.typed.Discovery().ServerGroups()
		if err != nil || !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == upgradeGroup }) {
			t.Errorf("groups: error %v, want the server's group in the list", err)
		}
	})
	step(upgradeOpenAPI, func(t *testing.T) {
		eventually(t, "there is a v3 document", func() error {
			got, err := d.typed.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/"+upgradeV1.Group+"/v1").SetHeader("Accept", "application/json").Do(t.Context()).Raw()
			if err != nil {
				return err
			}
			var document struct {
				OpenAPI string         `json:"openapi"`
				Paths   map[string]any `json:"paths"`
			}
			if err := json.Unmarshal(got, &document); err != nil {
				return err
			}
			if _, ok := document.Paths[consolePath]; !ok || !strings.HasPrefix(document.OpenAPI, "3.") {
				return fmt.Errorf("no console in %s", got)
			}
			return nil
		})
	})
	step(upgradeRefused, func(t *testing.T) {
		if _, code, err := dial(t, d.config, machines+"stopped/console", nil); err == nil || code != http.StatusConflict || !strings.Contains(err.Error(), "is not running") {
			t.Errorf("dial of a stopped machine = %d, %v; want 409", code, err)
		}
		if err := act(t.Context(), d.config, "stopped"); !apierrors.IsConflict(err) {
			t.Errorf("action on a stopped machine = %v, want Conflict", err)
		}
	})
	step(upgradeConsole, func(t *testing.T) { holdConsole(t, d) })
}

// holdConsole is silent on an open console for longer than any request may take.
func holdConsole(t *testing.T, d *frontDoor) {
	newUser := must[*rest.Config](t)(d.named("joe", users))
	conn, _, err := dial(t, newUser, machines+"running/console", nil)
	if err != nil {
		t.Fatal(err)
	}
	say := func(what string) {
		t.Helper()
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(what)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != "joe: "+what {
			t.Fatalf("echo = %q, %v; want the user joe and the text", got, err)
		}
	}
	say("hello")
	<-time.After(3 * patience)
	say("still there?")
}
