package core

import (
	"crypto/tls"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and still served to clients from before EndpointSlices

func secretResource() registry.Resource {
	return registry.Resource{
		Name: "secrets", Singular: "secret", Object: &corev1.Secret{}, List: &corev1.SecretList{},
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"stringData: {k: v}",
		},
		Rules:      validate.OnUpdate(validateSecret, validateSecretUpdate),
		Defaults:   defaults.Of(defaultSecret),
		Warnings:   validate.Warn(secretWarnings),
		Columns:    secretColumns,
		Fields:     secretFields(),
		WatchCache: true, AllowUnconditionalUpdate: true,
	}
}

func secretColumns() columns.Printer {
	doc := corev1.Secret{}.SwaggerDoc()
	return columns.Show(func(s *corev1.Secret, now time.Time) []any {
		return []any{s.Name, string(s.Type), int64(len(s.Data)), columns.AgeOf(s, now)}
	}, columns.Name(), columns.Text("Type", doc["type"]), columns.Text("Data", doc["data"]), columns.Age())
}

// defaultSecret also moves stringData, which is write-only, into data. kube-apiserver does so in the conversion to its internal
// kind, which does not exist here. Otherwise stringData would be stored and returned.
func defaultSecret(s *corev1.Secret) {
	defaults.Set(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func secretFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace("type"), func(set fields.Set, o *corev1.Secret) {
		set["type"] = string(o.Type)
	})
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	errs := validate.ObjectMeta(&s.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, validate.Invalid(data.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, secretType(s, data)...)
}

// secretType requires the keys that clients of each well-known type rely on. Errors never contain values.
func secretType(s *corev1.Secret, data *field.Path) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(
				field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return jsonKey(s, data, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return jsonKey(s, data, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return field.ErrorList{field.Required(data.Key(corev1.BasicAuthUsernameKey), ""),
				field.Required(data.Key(corev1.BasicAuthPasswordKey), "")}
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return append(presentKey(s, data, corev1.TLSCertKey), presentKey(s, data, corev1.TLSPrivateKeyKey)...)
	}
	return nil
}

func presentKey(s *corev1.Secret, data *field.Path, key string) field.ErrorList {
	if _, present := s.Data[key]; present {
		return nil
	}
	return field.ErrorList{field.Required(data.Key(key), "")}
}

func jsonKey(s *corev1.Secret, data *field.Path, key string) field.ErrorList {
	if errs := presentKey(s, data, key); len(errs) > 0 {
		return errs
	}
	if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validate.Immutable(s.Type, old.Type, field.NewPath("type"))
	if validate.IsTrue(old.Immutable) {
		errs = append(errs, stayImmutable(s.Immutable)...)
		if !apiequality.Semantic.DeepEqual(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
	}
	return append(errs, validateSecret(s)...)
}

// secretWarnings warns about a certificate and a key that do not form a valid pair.
func secretWarnings(s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
