package rbac

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBootstrapObjectsMatchKubeAPIServer compares each object with the objects that a kube-apiserver v1.37.1 and its controller manager had
// written a minute after their first start.
func TestBootstrapObjectsMatchKubeAPIServer(t *testing.T) {
	theirs, ours := recorded(t), map[string]policyObject{}
	p := Bootstrap()
	for _, r := range p.ClusterRoles {
		ours["ClusterRole "+r.Name] = policyObject{Labels: r.Labels, Annotations: r.Annotations, Rules: r.Rules, AggregationRule: r.AggregationRule}
	}
	for _, r := range p.Roles {
		ours["Role "+r.Namespace+"/"+r.Name] = policyObject{Labels: r.Labels, Annotations: r.Annotations, Rules: r.Rules}
	}
	for _, b := range p.ClusterRoleBindings {
		ours["ClusterRoleBinding "+b.Name] = policyObject{Labels: b.Labels, Annotations: b.Annotations, RoleRef: &b.RoleRef, Subjects: b.Subjects}
	}
	for _, b := range p.RoleBindings {
		ours["RoleBinding "+b.Namespace+"/"+b.Name] = policyObject{Labels: b.Labels, Annotations: b.Annotations, RoleRef: &b.RoleRef, Subjects: b.Subjects}
	}
	for name, want := range theirs {
		have, ok := ours[name]
		if !ok {
			t.Errorf("%s is missing in the bootstrap policy, want it as in Kubernetes", name)
			continue
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s differs from Kubernetes, want no difference (- Kubernetes, + Portico):\n%s", name, diff)
		}
	}
	for name := range ours {
		if _, ok := theirs[name]; !ok {
			t.Errorf("%s is not in Kubernetes' policy, want only its objects", name)
		}
	}
}

// policyObject holds the compared fields of the four kinds.
type policyObject struct {
	Labels, Annotations map[string]string
	Rules               []rbacv1.PolicyRule     `json:",omitempty"`
	AggregationRule     *rbacv1.AggregationRule `json:",omitempty"`
	RoleRef             *rbacv1.RoleRef         `json:",omitempty"`
	Subjects            []rbacv1.Subject        `json:",omitempty"`
}

// recorded reads one object per line.
func recorded(t *testing.T) map[string]policyObject {
	t.Helper()
	f, err := os.Open("testdata/kube-apiserver-v1.37.1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]policyObject{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o struct {
			Kind     string
			Metadata metav1.ObjectMeta
			policyObject
		}
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		name := o.Metadata.Name
		if o.Metadata.Namespace != "" {
			name = o.Metadata.Namespace + "/" + name
		}
		o.policyObject.Labels, o.policyObject.Annotations = o.Metadata.Labels, o.Metadata.Annotations
		all[o.Kind+" "+name] = o.policyObject
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
