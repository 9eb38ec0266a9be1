package sanity

// TimedBy has a driver say when calls are given up.
func (c Config) TimedBy(by clock) Config {
	c.clock = by
	return c
}
