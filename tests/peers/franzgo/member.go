package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// event is what a member tells: that it was given partitions, that they are taken from it, or what
// it read of one of them before it commits that.
type event struct {
	Kind       string   `json:"kind"`
	Generation int32    `json:"generation"`
	Partitions []int32  `json:"partitions"`
	Values     []string `json:"values"`
}

func (one event) tell(client *kgo.Client) {
	_, one.Generation = client.GroupMetadata()
	text, _ := json.Marshal(one)
	// A line at once: whoever follows the file finds whole ones, also when this process is killed.
	_, _ = os.Stdout.Write(append(text, '\n'))
}

func told(kind, topic string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
		event{Kind: kind, Partitions: partitions[topic]}.tell(client)
	}
}

// beMember reads in a group until SIGTERM, and leaves.
func beMember(bootstrap, group, topic, protocol string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(told("assigned", topic)),
		kgo.OnPartitionsRevoked(told("revoked", topic)),
		kgo.OnPartitionsLost(told("lost", topic)),
		// What was polled is told in the generation in which it was polled.
		kgo.BlockRebalanceOnPoll(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachPartition(func(of kgo.FetchTopicPartition) {
			read := event{Kind: "read", Partitions: []int32{of.Partition}}
			for _, record := range of.Records {
				read.Values = append(read.Values, string(record.Value))
			}
			if len(read.Values) > 0 {
				read.tell(client)
			}
		})
		// Whoever is no longer a member cannot, and another reads the same once more.
		_ = client.CommitUncommittedOffsets(ctx)
		client.AllowRebalance()
	}
	return nil
}
