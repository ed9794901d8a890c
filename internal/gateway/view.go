package gateway

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	typedclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/gateway/adoption"
)

// view shows only the adopted APIServices of the API server, as they would be without a gateway: with their original
// server, and with the gateway's condition BackendAvailable instead of Available. With this view, the front door's
// routing table serves a gateway too.
type view struct {
	gateway adoption.Service
	client  typedclient.APIServiceInterface
}

// frontAvailable is the type of the API server's condition Available in the view. It is never written.
const frontAvailable apiregistrationv1.APIServiceConditionType = "gateway.portico.dev/Available"

// originalOf returns an APIService as the view shows it. It returns false if the APIService is not adopted, or does not
// identify its server.
func (v view) originalOf(o *apiregistrationv1.APIService) (*apiregistrationv1.APIService, bool) {
	original, err := v.gateway.OriginalOf(o)
	if err != nil {
		return nil, false
	}
	out := o.DeepCopy()
	out.Spec.Service, out.Spec.CABundle, out.Spec.InsecureSkipTLSVerify = original.Service.Reference(), original.CABundle, original.InsecureSkipTLSVerify
	rename(out, map[apiregistrationv1.APIServiceConditionType]apiregistrationv1.APIServiceConditionType{
		apiregistrationv1.Available: frontAvailable, adoption.BackendAvailable: apiregistrationv1.Available,
	})
	return out, true
}

func rename(o *apiregistrationv1.APIService, names map[apiregistrationv1.APIServiceConditionType]apiregistrationv1.APIServiceConditionType) {
	for i, c := range o.Status.Conditions {
		if name, ok := names[c.Type]; ok {
			o.Status.Conditions[i].Type = name
		}
	}
}

// informer returns an informer of the view.
func (v view) informer() apiServices {
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := v.client.List(ctx, options)
			if err != nil {
				return nil, err
			}
			return v.list(list), nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := v.client.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return newShownWatch(w, v.event), nil
		},
	}
	return apiServices{cache.NewSharedIndexInformer(listWatch, &apiregistrationv1.APIService{}, 0, cache.Indexers{})}
}

func (v view) list(all *apiregistrationv1.APIServiceList) *apiregistrationv1.APIServiceList {
	out := &apiregistrationv1.APIServiceList{TypeMeta: all.TypeMeta, ListMeta: all.ListMeta}
	for i := range all.Items {
		if shown, ok := v.originalOf(&all.Items[i]); ok {
			out.Items = append(out.Items, *shown)
		}
	}
	return out
}

// shownWatch changes and leaves out events of a watch. After Stop, its goroutine ends even if no one receives the next event, which
// that of watch.Filter does not.
type shownWatch struct {
	watch.Interface // without changes
	events          chan watch.Event
	stopped         chan struct{}
	stop            sync.Once
}

func newShownWatch(w watch.Interface, show watch.FilterFunc) *shownWatch {
	s := &shownWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go s.forward(show)
	return s
}

func (s *shownWatch) forward(show watch.FilterFunc) {
	defer close(s.events)
	for e := range s.Interface.ResultChan() {
		shown, keep := show(e)
		if !keep {
			continue
		}
		select {
		case s.events <- shown:
		case <-s.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (s *shownWatch) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface.
func (s *shownWatch) Stop() {
	s.stop.Do(func() { close(s.stopped) })
	s.Interface.Stop()
}

// event shows an APIService that is not adopted as deleted. Informers ignore the deletion of an object that they do
// not have.
func (v view) event(e watch.Event) (watch.Event, bool) {
	o, ok := e.Object.(*apiregistrationv1.APIService)
	if !ok || e.Type == watch.Bookmark || e.Type == watch.Error {
		return e, true
	}
	shown, ok := v.originalOf(o)
	switch {
	case ok:
		e.Object = shown
	case e.Type == watch.Added:
		return e, false
	default:
		e.Type = watch.Deleted
	}
	return e, true
}

// apiServices is an informer with a lister.
type apiServices struct{ informer cache.SharedIndexInformer }

func (a apiServices) Informer() cache.SharedIndexInformer { return a.informer }
func (a apiServices) Lister() aggregatorlisters.APIServiceLister {
	return aggregatorlisters.NewAPIServiceLister(a.informer.GetIndexer())
}

// errReadOnly is returned for writes that a gateway never makes.
var errReadOnly = errors.New("a gateway writes nothing of an APIService but its own conditions and the caBundle of its own certificate")

// statusWriter is the client with which the routing table writes conditions of APIServices in the view, and no other
// fields.
type statusWriter struct{ client apiservice.Client }

// UpdateStatus writes the conditions of an APIService of the view under their real names. Its spec is not written.
func (w statusWriter) UpdateStatus(ctx context.Context, shown *apiregistrationv1.APIService, options metav1.UpdateOptions) (*apiregistrationv1.APIService, error) {
	real := shown.DeepCopy()
	rename(real, map[apiregistrationv1.APIServiceConditionType]apiregistrationv1.APIServiceConditionType{
		apiregistrationv1.Available: adoption.BackendAvailable, frontAvailable: apiregistrationv1.Available,
	})
	return w.client.UpdateStatus(ctx, real, options)
}

func (w statusWriter) Create(context.Context, *apiregistrationv1.APIService, metav1.CreateOptions) (*apiregistrationv1.APIService, error) {
	return nil, errReadOnly
}

func (w statusWriter) Update(context.Context, *apiregistrationv1.APIService, metav1.UpdateOptions) (*apiregistrationv1.APIService, error) {
	return nil, errReadOnly
}

func (w statusWriter) Delete(context.Context, string, metav1.DeleteOptions) error { return errReadOnly }
