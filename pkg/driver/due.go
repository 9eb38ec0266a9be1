package driver

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// due are the contracts that are to be brought to their terms: those of the
// configuration when the driver starts, and those whose terms change.
type due struct {
	news chan struct{} // has one element when there is something to do now

	mu        sync.Mutex
	contracts map[cosi.ContractID]config.Terms
}

// retryDue is how long what could not be done waits for another try, unless there
// is news.
const retryDue = 30 * time.Second

func newDue(contracts map[cosi.ContractID]config.Terms) *due {
	d := &due{news: make(chan struct{}, 1), contracts: contracts}
	d.wake()
	return d
}

// add takes contracts in, with their newest terms.
func (d *due) add(contracts map[cosi.ContractID]config.Terms) {
	d.mu.Lock()
	maps.Copy(d.contracts, contracts)
	d.mu.Unlock()
	d.wake()
}

func (d *due) wake() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// run lets converge do what is due until ctx ends. It returns what it could not
// do for now.
func (d *due) run(ctx context.Context, converge func(map[cosi.ContractID]config.Terms) map[cosi.ContractID]config.Terms) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.news:
		case <-time.After(retryDue):
		}
		d.mu.Lock()
		now := d.contracts
		d.contracts = map[cosi.ContractID]config.Terms{}
		d.mu.Unlock()
		if len(now) == 0 {
			continue
		}
		left := converge(now)
		d.mu.Lock()
		for id, terms := range left {
			if _, newer := d.contracts[id]; !newer {
				d.contracts[id] = terms
			}
		}
		d.mu.Unlock()
	}
}
