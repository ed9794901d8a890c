package plugins

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func resources(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func limitedPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: containers}}
}

func claim(requests corev1.ResourceList) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: requests}},
	}
}

// limiter returns the plugin for a namespace with these limits. They are in the lister or only in storage.
func limiter(t *testing.T, known bool, items ...corev1.LimitRangeItem) limitRanger {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	limits := corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: items}}
	if known {
		if err := indexer.Add(&limits); err != nil {
			t.Fatal(err)
		}
	}
	return limitRanger{
		Limits: corelisters.NewLimitRangeLister(indexer),
		List:   func(context.Context, string) ([]corev1.LimitRange, error) { return []corev1.LimitRange{limits}, nil },
	}
}

func limitAttributes(obj, old runtime.Object, operation admission.Operation, subresource string) admission.Attributes {
	plural, kind := "pods", "Pod"
	if _, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		plural, kind = "persistentvolumeclaims", "PersistentVolumeClaim"
	}
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind(kind), "ns", "x",
		corev1.SchemeGroupVersion.WithResource(plural), subresource, operation, nil, false, nil)
}

func TestLimitRangeRejectsPodsOutsideItsBounds(t *testing.T) {
	perContainer := func(min, max, ratio corev1.ResourceList) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: min, Max: max, MaxLimitRequestRatio: ratio}
	}
	perPod := func(max corev1.ResourceList) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: max}
	}
	half, one, two := resources("cpu", "500m"), resources("cpu", "1"), resources("cpu", "2")
	gone := limitedPod()
	gone.DeletionTimestamp = &metav1.Time{}
	sidecar := corev1.ContainerRestartPolicyAlways
	withInit := func(policy *corev1.ContainerRestartPolicy) *corev1.Pod {
		p := limitedPod(container("a", one, one))
		init := container("i", two, two)
		init.RestartPolicy = policy
		p.Spec.InitContainers = []corev1.Container{init}
		return p
	}
	for name, c := range map[string]struct {
		item    corev1.LimitRangeItem
		a       admission.Attributes
		refused string // empty: admitted
	}{
		"enough":                   {perContainer(half, two, nil), limitAttributes(limitedPod(container("a", one, one)), nil, admission.Create, ""), ""},
		"too little asked for":     {perContainer(one, nil, nil), limitAttributes(limitedPod(container("a", half, nil)), nil, admission.Create, ""), "minimum cpu usage per Container is 1, but request is 500m"},
		"too little granted":       {perContainer(one, nil, nil), limitAttributes(limitedPod(container("a", one, half)), nil, admission.Create, ""), "minimum cpu usage per Container is 1, but limit is 500m"},
		"nothing asked for":        {perContainer(one, nil, nil), limitAttributes(limitedPod(container("a", nil, nil)), nil, admission.Create, ""), "minimum cpu usage per Container is 1.  No request is specified"},
		"no limit":                 {perContainer(nil, one, nil), limitAttributes(limitedPod(container("a", half, nil)), nil, admission.Create, ""), "maximum cpu usage per Container is 1.  No limit is specified"},
		"too high a limit":         {perContainer(nil, one, nil), limitAttributes(limitedPod(container("a", half, two)), nil, admission.Create, ""), "maximum cpu usage per Container is 1, but limit is 2"},
		"too high a request":       {perContainer(nil, one, nil), limitAttributes(limitedPod(container("a", two, one)), nil, admission.Create, ""), "maximum cpu usage per Container is 1, but request is 2"},
		"an init container":        {perContainer(nil, one, nil), limitAttributes(withInit(nil), nil, admission.Create, ""), "but limit is 2"},
		"ratio kept":               {perContainer(nil, nil, two), limitAttributes(limitedPod(container("a", one, two)), nil, admission.Create, ""), ""},
		"ratio broken":             {perContainer(nil, nil, resources("cpu", "1.5")), limitAttributes(limitedPod(container("a", one, two)), nil, admission.Create, ""), "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"},
		"ratio to nothing":         {perContainer(nil, nil, two), limitAttributes(limitedPod(container("a", nil, two)), nil, admission.Create, ""), "but no request is specified or request is 0"},
		"ratio of nothing":         {perContainer(nil, nil, two), limitAttributes(limitedPod(container("a", one, nil)), nil, admission.Create, ""), "but no limit is specified or limit is 0"},
		"together too much":        {perPod(one), limitAttributes(limitedPod(container("a", half, half), container("b", one, one)), nil, admission.Create, ""), "maximum cpu usage per Pod is 1, but limit is 1500m"},
		"init before the others":   {perPod(two), limitAttributes(withInit(nil), nil, admission.Create, ""), ""},
		"a sidecar besides":        {perPod(two), limitAttributes(withInit(&sidecar), nil, admission.Create, ""), "but limit is 3"},
		"an update of a pod":       {perContainer(nil, half, nil), limitAttributes(limitedPod(container("a", one, one)), limitedPod(), admission.Update, ""), ""},
		"its status":               {perContainer(nil, half, nil), limitAttributes(limitedPod(container("a", one, one)), limitedPod(), admission.Update, "status"), ""},
		"its resize":               {perContainer(nil, half, nil), limitAttributes(limitedPod(container("a", one, one)), limitedPod(), admission.Update, "resize"), "but limit is 1"},
		"what is being deleted":    {perContainer(nil, half, nil), limitAttributes(limitedPod(container("a", one, one)), gone, admission.Update, "resize"), ""},
		"too large a claim":        {corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: resources("storage", "1Gi")}, limitAttributes(claim(resources("storage", "2Gi")), nil, admission.Create, ""), "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"},
		"too small a claim":        {corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: resources("storage", "3Gi")}, limitAttributes(claim(resources("storage", "2Gi")), claim(nil), admission.Update, ""), "minimum storage usage per PersistentVolumeClaim is 3Gi, but request is 2Gi"},
		"a claim, for containers":  {perContainer(nil, resources("storage", "1Gi"), nil), limitAttributes(claim(resources("storage", "2Gi")), nil, admission.Create, ""), ""},
		"8 EiB less one, 8 EiB":    {perContainer(nil, resources("memory", "9223372036854775806"), nil), limitAttributes(limitedPod(container("a", nil, resources("memory", "9223372036854775807"))), nil, admission.Create, ""), "but limit is 9223372036854775807"},
		"two complaints, in order": {perContainer(resources("memory", "1Gi", "cpu", "1"), nil, nil), limitAttributes(limitedPod(container("a", nil, nil)), nil, admission.Create, ""), "[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage"},
	} {
		t.Run(name, func(t *testing.T) {
			err := limiter(t, true, c.item).Validate(t.Context(), c.a, nil)
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("Validate failed: %v, want no error", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("Validate error = %v, want an error that contains %q", err, c.refused)
			}
		})
	}
}

func TestLimitRangeSetsDefaultRequestsAndLimits(t *testing.T) {
	item := corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer, Default: resources("cpu", "2", "memory", "1Gi"), DefaultRequest: resources("cpu", "1"),
	}
	p := limitedPod(container("a", nil, nil), container("b", resources("cpu", "3"), resources("cpu", "3")))
	p.Spec.InitContainers = []corev1.Container{container("i", nil, resources("memory", "2Gi"))}
	// The lister does not have the limits yet.
	if err := limiter(t, false, item).Admit(t.Context(), limitAttributes(p, nil, admission.Create, ""), nil); err != nil {
		t.Fatal(err)
	}
	want := limitedPod(container("a", resources("cpu", "1"), resources("cpu", "2", "memory", "1Gi")), container("b", resources("cpu", "3"), resources("cpu", "3", "memory", "1Gi")))
	want.Spec.InitContainers = []corev1.Container{container("i", resources("cpu", "1"), resources("cpu", "2", "memory", "2Gi"))}
	want.Annotations = map[string]string{"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container a; " +
		"cpu, memory limit for container a; memory limit for container b; cpu request for init container i; cpu limit for init container i"}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("the admitted pod differs, want no difference: %s", diff)
	}
}

func TestPodsAreAdmittedWithoutLimitRangeLister(t *testing.T) {
	if err := (limitRanger{}).Validate(t.Context(), limitAttributes(limitedPod(), nil, admission.Create, ""), nil); err != nil {
		t.Error(err)
	}
}
