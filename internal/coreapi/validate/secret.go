package validate

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func ValidateSecret(s *corev1.Secret) field.ErrorList {
	errs := objectMeta(&s.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, invalid(data.Key(key), key, utilvalidation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, secretType(s, data)...)
}

// secretType asks for what the readers of each well-known type rely on. Values are never repeated in an error.
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

func ValidateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := immutable(s.Type, old.Type, field.NewPath("type"))
	if frozen(old.Immutable) {
		errs = append(errs, stayImmutable(s.Immutable)...)
		if !apiequality.Semantic.DeepEqual(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
	}
	return append(errs, ValidateSecret(s)...)
}
