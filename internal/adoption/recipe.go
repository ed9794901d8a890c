package adoption

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Recipe is what kubectl must be told to adopt an APIService and to release it.
type Recipe struct {
	Adopt   []string `json:"adopt"`
	Release []string `json:"release"`
}

// RecipeFor returns the commands for an APIService that is not adopted. It is prepared already if prepared is its copy after Prepare.
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
	return Recipe{Adopt: []string{command(annotate), there}, Release: []string{back, command(remove)}}, nil
}

// patch is the command that makes an APIService lead somewhere.
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

// command quotes for a shell.
func command(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; strings.ContainsAny(w, "{}\"'$ \\") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
