// Package bootstrap contains kube-controller-manager's controllers for bootstrap tokens: one signs the ConfigMap cluster-info
// for each token, the other deletes expired tokens.
package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/secrets"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
)

// Config configures both controllers. Every field is required.
type Config struct {
	Client clients.Interface
	// Secrets is shared with the rest of the server, which runs it.
	Secrets  coreinformers.SecretInformer
	Election reconcile.Election
	Logger   *zap.Logger
}

// isToken reports whether an object is a bootstrap token.
func isToken(obj any) bool {
	s, ok := obj.(*corev1.Secret)
	return ok && s.Namespace == metav1.NamespaceSystem && s.Type == bootstrapapi.SecretTypeBootstrapToken
}

// RunSigner maintains a signature for each token in the ConfigMap kube-public/cluster-info, if it exists, until ctx ends. The
// signature is an HMAC keyed with the token. A client that has a token but no other way to verify the server uses it to verify
// the kubeconfig in the ConfigMap.
func RunSigner(ctx context.Context, c Config) error {
	configMaps := c.Client.CoreV1().ConfigMaps(metav1.NamespacePublic)
	informer := reconcile.NewInformer(c.Client, configMaps, &corev1.ConfigMap{}, bootstrapapi.ConfigMapClusterInfo)
	clusterInfo := func(any) string { return bootstrapapi.ConfigMapClusterInfo }
	l := &reconcile.Loop{
		Name: "bootstrap-signer", Workers: 1, Election: c.Election, Log: c.Logger,
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			obj, exists, err := informer.GetStore().GetByKey(metav1.NamespacePublic + "/" + name)
			if !exists || err != nil {
				return 0, err
			}
			all, err := c.Secrets.Lister().Secrets(metav1.NamespaceSystem).List(labels.Everything())
			if err != nil {
				return 0, err
			}
			signed, again, err := sign(obj.(*corev1.ConfigMap), all, time.Now())
			if err != nil || signed == nil {
				return again, err
			}
			_, err = configMaps.Update(ctx, signed, metav1.UpdateOptions{})
			return again, reconcile.Ignoring(err, reconcile.IsOutdated)
		},
	}
	return l.Run(ctx, reconcile.Source{Informer: informer, Key: clusterInfo, Owned: true},
		reconcile.Source{Informer: c.Secrets.Informer(), Key: func(obj any) string {
			if !isToken(obj) {
				return ""
			}
			return clusterInfo(obj)
		}})
}

// sign returns the ConfigMap with the required signatures, or nil if it already has them, and the time until the next token
// expires.
func sign(info *corev1.ConfigMap, all []*corev1.Secret, now time.Time) (signed *corev1.ConfigMap, again time.Duration, err error) {
	kubeconfig, ok := info.Data[bootstrapapi.KubeConfigKey]
	if !ok {
		return nil, 0, nil
	}
	signed = info.DeepCopy()
	maps.DeleteFunc(signed.Data, func(key, _ string) bool { return strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) })
	for _, s := range all {
		id, secret, ok := signingToken(s, now)
		if !ok {
			continue
		}
		signature, err := jws.ComputeDetachedSignature(kubeconfig, id, secret)
		if err != nil {
			return nil, 0, fmt.Errorf("sign configmap %s for secret %s: %w", info.Name, s.Name, err)
		}
		signed.Data[bootstrapapi.JWSSignatureKeyPrefix+id] = signature
		if left, _ := secrets.GetExpiration(s, now); left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	if maps.Equal(signed.Data, info.Data) {
		return nil, again, nil
	}
	return signed, again, nil
}

// signingToken returns the parts of a token if it is valid and enabled for signing. The name of a Secret contains the token ID,
// so an ID belongs to at most one Secret.
func signingToken(s *corev1.Secret, now time.Time) (id, secret string, ok bool) {
	named, isNamed := secrets.ParseName(s.Name)
	id, secret = secrets.GetData(s, bootstrapapi.BootstrapTokenIDKey), secrets.GetData(s, bootstrapapi.BootstrapTokenSecretKey)
	ok = isToken(s) && isNamed && named == id && secret != "" && !secrets.HasExpired(s, now) &&
		secrets.GetData(s, bootstrapapi.BootstrapTokenUsageSigningKey) == "true"
	return id, secret, ok
}

// RunCleaner deletes expired tokens until ctx ends. A token with an invalid expiration counts as expired, as in
// kube-controller-manager.
func RunCleaner(ctx context.Context, c Config) error {
	l := &reconcile.Loop{
		Name: "token-cleaner", Workers: 1, Election: c.Election, Log: c.Logger,
		Reconcile: func(ctx context.Context, name string) (time.Duration, error) {
			s, err := c.Secrets.Lister().Secrets(metav1.NamespaceSystem).Get(name)
			if apierrors.IsNotFound(err) || err == nil && !isToken(s) {
				return 0, nil
			}
			if err != nil {
				return 0, err
			}
			left, expired := secrets.GetExpiration(s, time.Now())
			if !expired {
				return left, nil
			}
			err = c.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
			if err = reconcile.Ignoring(err, reconcile.IsOutdated); err == nil {
				c.Logger.Info("deleted an expired bootstrap token", zap.String("secret", s.Name))
			}
			return 0, err
		},
	}
	return l.Run(ctx, reconcile.Source{Informer: c.Secrets.Informer(), Key: func(obj any) string {
		if !isToken(obj) {
			return ""
		}
		return reconcile.NameOf(obj)
	}})
}
