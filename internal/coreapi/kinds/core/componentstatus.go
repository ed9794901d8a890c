package core

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
)

const (
	// componentTimeout limits the health check of etcd.
	componentTimeout = 5 * time.Second
	// etcdComponent is kube-apiserver's name for the first etcd.
	etcdComponent = "etcd-0"
)

// componentStatuses serves `kubectl get componentstatuses`, which is deprecated since 1.19 and still used. etcd is the only
// component: the addresses of schedulers and controller managers are unknown here.
type componentStatuses struct {
	rest.TableConvertor
	check func(ctx context.Context) error
}

func newComponentStatuses(e *registry.Environment) rest.Storage {
	return &componentStatuses{columns.Convertor(ComponentStatusColumns(), time.Now), e.CheckStore}
}

var (
	_ rest.Getter               = (*componentStatuses)(nil)
	_ rest.Lister               = (*componentStatuses)(nil)
	_ rest.Scoper               = (*componentStatuses)(nil)
	_ rest.SingularNameProvider = (*componentStatuses)(nil)
	_ rest.ShortNamesProvider   = (*componentStatuses)(nil)
)

func (*componentStatuses) New() runtime.Object { return &corev1.ComponentStatus{} }

func (*componentStatuses) NewList() runtime.Object { return &corev1.ComponentStatusList{} }

func (*componentStatuses) Destroy() {}

func (*componentStatuses) NamespaceScoped() bool { return false }

func (*componentStatuses) GetSingularName() string { return "componentstatus" }

func (*componentStatuses) ShortNames() []string { return []string{"cs"} }

func (c *componentStatuses) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != etcdComponent {
		return nil, apierrors.NewNotFound(corev1.Resource("componentstatus"), name)
	}
	status := c.etcd(ctx)
	return &status, nil
}

func (c *componentStatuses) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list := &corev1.ComponentStatusList{Items: []corev1.ComponentStatus{}}
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	if byLabel.Matches(labels.Set{}) && byField.Matches(fields.Set{"metadata.name": etcdComponent}) {
		list.Items = append(list.Items, c.etcd(ctx))
	}
	return list, nil
}

func (c *componentStatuses) etcd(ctx context.Context) corev1.ComponentStatus {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := c.check(ctx); err != nil {
		condition = corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Error: err.Error()}
	}
	return corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: etcdComponent}, Conditions: []corev1.ComponentCondition{condition}}
}

func ComponentStatusColumns() columns.Printer {
	return columns.Show(func(c *corev1.ComponentStatus, _ time.Time) []any {
		for _, condition := range c.Conditions {
			if condition.Type != corev1.ComponentHealthy {
				continue
			}
			status := "Unhealthy"
			if condition.Status == corev1.ConditionTrue {
				status = "Healthy"
			}
			return []any{c.Name, status, condition.Message, condition.Error}
		}
		return []any{c.Name, "Unknown", "", ""}
	}, columns.Name(), columns.Text("Status", "Whether the component is healthy"), columns.Text("Message", "What it says"), columns.Text("Error", "What is wrong with it"))
}
