package coreapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	typedregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

// registrars is people and two users who may write every APIService. The second user may replace the local APIService v1.apps.
type registrars struct{ people }

func (r registrars) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name, ours := a.GetUser().GetName(), a.GetResource() == "apiservices" && a.GetAPIGroup() == "apiregistration.k8s.io"
	switch {
	case !ours || name != "writer" && name != "replacer":
		return r.people.Authorize(ctx, a)
	case a.GetVerb() != "replace-local" || name == "replacer" && a.GetName() == "v1.apps":
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r registrars) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

func TestReplacingLocalAPINeedsReplaceLocalRight(t *testing.T) {
	t.Parallel()
	s := crdServerOver(t, start(t, func(c *Config) { c.Authorizer = registrars{} }))
	s.define(t, boats)
	as := func(u user.Info) typedregistration.APIServiceInterface {
		client, err := aggregator.NewForConfig(s.ClientConfig(u))
		if err != nil {
			t.Fatal(err)
		}
		return client.ApiregistrationV1().APIServices()
	}
	root, writer, replacer := as(admin), as(&user.DefaultInfo{Name: "writer"}), as(&user.DefaultInfo{Name: "replacer"})
	ctx := within(t)
	backend := &apiregistrationv1.ServiceReference{Namespace: "work", Name: "mine"}
	group := func(name string) string { _, g, _ := strings.Cut(name, "."); return g }
	remote := func(name string) *apiregistrationv1.APIService { return apiService(name, group(name), "v1", backend) }
	apply := func(c typedregistration.APIServiceInterface, name string, change func(*apiregistrationv1.APIService)) error {
		o := remote(name)
		o.TypeMeta = metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}
		if change != nil {
			change(o)
		}
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "it", Force: new(true)})
		return err
	}
	refused := func(t *testing.T, err error, name string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `apiservices.apiregistration.k8s.io "`+name+`" is forbidden`) ||
			!strings.Contains(err.Error(), `cannot replace-local resource "apiservices" in API group "apiregistration.k8s.io"`) {
			t.Errorf("%s: error = %v, want Forbidden for replace-local", name, err)
		}
	}
	allowed := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}

	for situation, name := range map[string]string{
		"the core group": "v1.", "a built-in group": "v1.apps", "a definition's group": "v1.sea.example.com",
	} {
		t.Run("C17 "+situation, func(t *testing.T) {
			_, err := writer.Create(ctx, remote(name), metav1.CreateOptions{})
			refused(t, err, name)
			_, err = writer.Create(ctx, remote(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			refused(t, err, name)
			refused(t, apply(writer, name, nil), name)
			// The existing APIService is local, as the front door registers it.
			own, err := root.Create(ctx, apiService(name, group(name), "v1", nil), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			own.Spec.Service = backend
			_, err = writer.Update(ctx, own, metav1.UpdateOptions{})
			refused(t, err, name)
			const value = `{"namespace":"work","name":"mine"}`
			_, err = writer.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"service":`+value+`}}`), metav1.PatchOptions{})
			refused(t, err, name)
			_, err = writer.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"spec":{"service":`+value+`}}`), metav1.PatchOptions{})
			refused(t, err, name)
			_, err = writer.Patch(ctx, name, types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/service","value":`+value+`}]`), metav1.PatchOptions{})
			refused(t, err, name)
			refused(t, apply(writer, name, nil), name)
			if now, err := root.Get(ctx, name, metav1.GetOptions{}); err != nil || now.Spec.Service != nil {
				t.Errorf("the APIService %s has the service %v (error: %v), want none", name, now.Spec.Service, err)
			}
		})
	}
	t.Run("what is not served here", func(t *testing.T) {
		_, err := writer.Create(ctx, remote("v1.land.example.com"), metav1.CreateOptions{})
		allowed(t, err)
		allowed(t, apply(writer, "v1.air.example.com", nil))
		_, err = writer.Create(ctx, apiService("v2.sea.example.com", "sea.example.com", "v2", backend), metav1.CreateOptions{})
		allowed(t, err)
	})
	t.Run("a local registration", func(t *testing.T) {
		_, err := writer.Patch(ctx, "v1.apps", types.MergePatchType, []byte(`{"spec":{"versionPriority":11}}`), metav1.PatchOptions{})
		allowed(t, err)
	})
	t.Run("with the right, by name", func(t *testing.T) {
		refused(t, apply(replacer, "v1.", nil), "v1.")
		allowed(t, apply(replacer, "v1.apps", nil))
	})
	t.Run("what has been replaced", func(t *testing.T) {
		_, err := writer.Patch(ctx, "v1.apps", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"versionPriority":12}}`), metav1.PatchOptions{})
		allowed(t, err)
		_, err = writer.Patch(ctx, "v1.apps", types.MergePatchType, []byte(`{"spec":{"service":{"name":"another"}}}`), metav1.PatchOptions{})
		refused(t, err, "v1.apps")
		_, err = writer.Patch(ctx, "v1.apps", types.MergePatchType, []byte(`{"spec":{"service":null}}`), metav1.PatchOptions{})
		allowed(t, err)
		_, err = writer.Patch(ctx, "v1.apps", types.MergePatchType, []byte(`{"spec":{"service":{"namespace":"work","name":"mine"}}}`), metav1.PatchOptions{})
		refused(t, err, "v1.apps")
	})
	t.Run("by those who may everything", func(t *testing.T) { allowed(t, apply(root, "v1.", nil)) })
}
