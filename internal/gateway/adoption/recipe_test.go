package adoption

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// objects are the objects that an adoption writes. They execute the printed commands as kubectl does.
type objects struct {
	t          *testing.T
	apiService *apiregistrationv1.APIService
	role       *rbacv1.ClusterRole // nil for none
}

func (c *objects) execute(commands []string) {
	c.t.Helper()
	for _, line := range commands {
		script, input, _ := strings.Cut(line, " <<'EOF'\n")
		words := splitShell(script)
		if len(words) < 3 || words[0] != "kubectl" {
			c.t.Fatalf("command of the recipe = %s, want kubectl", line)
		}
		var err error
		switch words[1] {
		case "auth":
			err = c.reconcile(strings.TrimSuffix(input, "\nEOF"))
		case "annotate":
			c.annotate(words[2:])
		case "patch":
			err = c.patch(words[len(words)-1])
		case "wait":
		default:
			err = fmt.Errorf("unknown command")
		}
		if err != nil {
			c.t.Fatalf("command %s failed: %v, want no error", line, err)
		}
	}
}

// splitShell splits a command at spaces outside of single quotes.
func splitShell(command string) (words []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func (c *objects) annotate(words []string) {
	for _, word := range words {
		key, value, sets := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "--") || !strings.Contains(word, "/"):
		case sets:
			c.apiService.Annotations[key] = value
		default:
			delete(c.apiService.Annotations, strings.TrimSuffix(word, "-"))
		}
	}
}

func (c *objects) patch(patch string) error {
	before, err := json.Marshal(c.apiService)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, []byte(patch))
	if err != nil {
		return err
	}
	c.apiService = &apiregistrationv1.APIService{}
	return json.Unmarshal(after, c.apiService)
}

func (c *objects) reconcile(manifest string) error {
	role := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(manifest), role); err != nil {
		return err
	}
	role.TypeMeta = metav1.TypeMeta{}
	options := reconciliation.ReconcileRoleOptions{Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, Confirm: true, Client: c}
	_, err := options.Run()
	return err
}

// Get implements reconciliation.RuleOwnerModifier.
func (c *objects) Get(_, name string) (reconciliation.RuleOwner, error) {
	if c.role == nil || c.role.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "clusterroles"}, name)
	}
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: c.role}, nil
}

// Create implements reconciliation.RuleOwnerModifier.
func (c *objects) Create(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return c.Update(o)
}

// Update implements reconciliation.RuleOwnerModifier.
func (c *objects) Update(o reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	c.role = o.(reconciliation.ClusterRoleRuleOwner).ClusterRole
	return o, nil
}

// adopt changes the objects as `aggregator adopt` does.
func (c *objects) adopt(caBundle []byte) {
	c.t.Helper()
	if c.role == nil {
		c.role = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: gateway.AdoptedRole()}}
	}
	Grant(c.role, c.apiService.Name)
	if err := gateway.Prepare(c.apiService); err != nil {
		c.t.Fatal(err)
	}
	if err := gateway.Adopt(c.apiService, caBundle); err != nil {
		c.t.Fatal(err)
	}
}

func TestPrintedCommandsProduceTheObjectsOfAdopt(t *testing.T) {
	ours := authority(t, "gateway")
	role := func(names ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: gateway.AdoptedRole()}}
		for _, name := range names {
			Grant(r, name)
		}
		return r
	}
	older := role()
	older.Rules = []rbacv1.PolicyRule{{
		APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices", "apiservices/status"}, ResourceNames: []string{"v1.other.example.com"}, Verbs: []string{"update"},
	}}
	all := role()
	all.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	for name, before := range map[string]*rbacv1.ClusterRole{
		"a role for all APIServices":    all,
		"no role":                       nil,
		"a role without rules":          role(),
		"a role with another name":      role("v1.other.example.com"),
		"a role of an older version":    older,
		"a role with this name already": role("v1.other.example.com", "v1beta1.metrics.k8s.io"),
	} {
		for _, caBundle := range [][]byte{nil, authority(t, "server")} {
			t.Run(fmt.Sprintf("%s, caBundle %t", name, caBundle != nil), func(t *testing.T) {
				o := metricsServer(443, caBundle)
				want := &objects{t: t, apiService: o.DeepCopy(), role: before.DeepCopy()}
				want.adopt(ours)
				prepared := o.DeepCopy()
				if err := gateway.Prepare(prepared); err != nil {
					t.Fatal(err)
				}
				recipe, err := gateway.RecipeFor(prepared, ours)
				if err != nil {
					t.Fatal(err)
				}
				got := &objects{t: t, apiService: o.DeepCopy(), role: before.DeepCopy()}
				got.execute(recipe.Adopt)
				if !equality.Semantic.DeepEqual(got.apiService, want.apiService) {
					t.Errorf("APIService = %+v, want %+v", got.apiService, want.apiService)
				}
				if !equality.Semantic.DeepEqual(got.role, want.role) {
					t.Errorf("ClusterRole = %+v, want %+v", got.role, want.role)
				}
				got.execute(recipe.Release)
				if !equality.Semantic.DeepEqual(got.apiService, o) {
					t.Errorf("released APIService = %+v, want %+v", got.apiService, o)
				}
			})
		}
	}
}

func TestRevokeRemovesOnlyOneName(t *testing.T) {
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices", "apiservices/status"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"update"},
	}}}
	Grant(role, "c")
	before := role.DeepCopy()
	if Grant(role, "a") || !Grant(role, "d") || !Revoke(role, "d") || !equality.Semantic.DeepEqual(role, before) {
		t.Errorf("role = %+v, want %+v", role, before)
	}
	if !Revoke(role, "a") || Revoke(role, "a") || len(role.Rules) != 3 || len(role.Rules[0].ResourceNames) != 1 || role.Rules[0].ResourceNames[0] != "b" {
		t.Errorf("role without a = %+v, want 3 rules with b only", role)
	}
	if Revoke(role, "b"); len(role.Rules) != 2 {
		t.Errorf("rules without b = %+v, want the two of c", role.Rules)
	}
}
