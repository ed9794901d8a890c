package adoption

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Recipe contains the kubectl commands that adopt an APIService and release it.
type Recipe struct {
	Adopt   []string `json:"adopt"`
	Release []string `json:"release"`
}

// RecipeFor returns the commands for an APIService. prepared is a copy of it after Prepare. The commands create the
// same objects as `aggregator adopt`. The release commands leave the permission to write the APIService in the
// ClusterRole, where it has no effect.
func (g Service) RecipeFor(prepared *apiregistrationv1.APIService, caBundle []byte) (Recipe, error) {
	original, err := g.OriginalOf(prepared)
	if err != nil {
		return Recipe{}, err
	}
	annotate := []string{"kubectl", "annotate", "--overwrite", "apiservice", prepared.Name}
	remove := []string{"kubectl", "annotate", "apiservice", prepared.Name}
	for _, a := range annotations() {
		if value, ok := prepared.Annotations[a]; ok {
			annotate = append(annotate, a+"="+value)
		}
		remove = append(remove, a+"-")
	}
	there, err := patch(prepared.Name, Original{Service: g, CABundle: caBundle})
	if err != nil {
		return Recipe{}, err
	}
	back, err := patch(prepared.Name, original)
	if err != nil {
		return Recipe{}, err
	}
	may, err := g.reconcile(prepared.Name)
	if err != nil {
		return Recipe{}, err
	}
	adopt := []string{may, command(annotate), await(prepared.Name, BackendAvailable), await(prepared.Name, FrontProxyTrusted), there}
	return Recipe{Adopt: adopt, Release: []string{back, command(remove)}}, nil
}

// reconcile returns the command that adds the rules of Grant to the ClusterRole, and creates the ClusterRole if
// necessary.
func (g Service) reconcile(apiService string) (string, error) {
	role := rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: g.AdoptedRole()}, Rules: grants(apiService),
	}
	text, err := json.Marshal(role)
	if err != nil {
		return "", err
	}
	return "kubectl auth reconcile -f - <<'EOF'\n" + string(text) + "\nEOF", nil
}

// await returns the command that waits for a condition. `aggregator adopt` waits for the same condition before it
// changes the spec.
func await(apiService string, t apiregistrationv1.APIServiceConditionType) string {
	return command([]string{"kubectl", "wait", "apiservice", apiService, "--for=condition=" + string(t), "--timeout=2m"})
}

// patch returns the command that changes the server of an APIService.
func patch(name string, to Original) (string, error) {
	spec := map[string]any{
		"service":  map[string]any{"namespace": to.Service.Namespace, "name": to.Service.Name, "port": to.Service.Port},
		"caBundle": nil, "insecureSkipTLSVerify": nil,
	}
	if len(to.CABundle) > 0 {
		spec["caBundle"] = base64.StdEncoding.EncodeToString(to.CABundle)
	}
	if to.InsecureSkipTLSVerify {
		spec["insecureSkipTLSVerify"] = true
	}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return "", err
	}
	return command([]string{"kubectl", "patch", "apiservice", name, "--type=merge", "-p", string(text)}), nil
}

// command quotes words for a shell.
func command(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; strings.ContainsAny(w, "{}\"'$ \\") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
