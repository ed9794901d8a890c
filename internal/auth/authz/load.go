package authz

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/cel"

	"portico.dev/internal/pki"
)

// maxFileBytes is the maximum size of an AuthorizationConfiguration.
const maxFileBytes = 1 << 20

// readFile reads an AuthorizationConfiguration and applies defaults.
func readFile(name string) (*apiserver.AuthorizationConfiguration, error) {
	data, err := pki.ReadFile(name, maxFileBytes, fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes))
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s is empty", name) // the loader would return a configuration without authorizers
	}
	config, err := load.LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return config, nil
}

// check validates a configuration. The compiler for conditions costs a few milliseconds and one to two megabytes, so
// it is nil without webhooks.
func check(config *apiserver.AuthorizationConfiguration) (cel.Compiler, error) {
	webhooks := false
	for i, a := range config.Authorizers {
		if err := checkMode(string(a.Type)); err != nil {
			return nil, fmt.Errorf("authorizers[%d].type: %w", i, err)
		}
		if a.Type != apiserver.TypeWebhook || a.Webhook == nil {
			continue
		}
		webhooks = true
		if a.Webhook.ConnectionInfo.Type == apiserver.AuthorizationWebhookConnectionInfoTypeInCluster {
			return nil, fmt.Errorf("authorizers[%d].connectionInfo.type: this server is in no cluster but its own; use KubeConfigFile", i)
		}
	}
	var compiler cel.Compiler
	if webhooks {
		compiler = cel.NewDefaultCompiler()
	}
	errs := validation.ValidateAuthorizationConfiguration(compiler, field.NewPath(""), config,
		sets.New(modes...), sets.New(ModeWebhook))
	return compiler, errs.ToAggregate()
}
