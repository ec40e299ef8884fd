package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// tests/peers/secured/cases.py has the fields of cases and outcomes.
type login struct {
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
	TokenURL  string `json:"token_url"`
}

type securedCase struct {
	Action      string  `json:"action"`
	Bootstrap   string  `json:"bootstrap"`
	Topic       string  `json:"topic"`
	Group       string  `json:"group"`
	Trusted     string  `json:"trusted"`
	Certificate string  `json:"certificate"`
	Key         string  `json:"key"`
	Login       *login  `json:"login"`
	Count       int     `json:"count"`
	Seconds     float64 `json:"seconds"`
	Pause       float64 `json:"pause"`
	Last        string  `json:"last"`
}

type outcome struct {
	Error   string   `json:"error"`
	Seconds float64  `json:"seconds"`
	Created bool     `json:"created"`
	Values  []string `json:"values"`
	Again   []string `json:"again"`
	Written int      `json:"written"`
}

const patience = 40 * time.Second

// playSecured plays the cases of stdin, all at the same time, and prints their outcomes.
func playSecured() error {
	var cases []securedCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		return err
	}
	outcomes := make([]outcome, len(cases))
	var running sync.WaitGroup
	for at, one := range cases {
		running.Go(func() { outcomes[at] = one.play() })
	}
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(outcomes)
}

func (one securedCase) play() outcome {
	began, found := time.Now(), outcome{Values: []string{}, Again: []string{}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	switch one.Action {
	case "use":
		err = one.use(ctx, &found)
	case "stay":
		err = one.stay(ctx, &found)
	default:
		err = one.write(ctx, &found)
	}
	if err != nil {
		found.Error, found.Seconds = err.Error(), time.Since(began).Seconds()
	}
	return found
}

func (one securedCase) client(more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(one.Bootstrap, ",")...), kgo.DefaultProduceTopic(one.Topic),
		kgo.RecordDeliveryTimeout(patience),
	}
	if one.Trusted != "" {
		encrypted, err := one.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	if one.Login != nil {
		options = append(options, kgo.SASL(one.Login.mechanism()))
	}
	return kgo.NewClient(append(options, more...)...)
}

func (one securedCase) tls() (*tls.Config, error) {
	authorities, err := os.ReadFile(one.Trusted)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	config := &tls.Config{RootCAs: pool}
	if one.Certificate == "" {
		return config, nil
	}
	own, err := tls.LoadX509KeyPair(one.Certificate, one.Key)
	config.Certificates = []tls.Certificate{own}
	return config, err
}

func (of *login) mechanism() sasl.Mechanism {
	switch of.Mechanism {
	case "PLAIN":
		return plain.Auth{User: of.User, Pass: of.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: of.User, Pass: of.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: of.User, Pass: of.Password}.AsSha512Mechanism()
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := of.token(ctx)
		return oauth.Auth{Token: token}, err
	})
}

func (of *login) token(ctx context.Context) (string, error) {
	if of.Token != "" {
		return of.Token, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"kafka"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, "POST", of.TokenURL, strings.NewReader(form))
	if err != nil {
		return "", err
	}
	request.SetBasicAuth(of.User, of.Password)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var told struct {
		Token string `json:"access_token"`
	}
	return told.Token, json.NewDecoder(answer.Body).Decode(&told)
}

func (one securedCase) create(ctx context.Context, client *kgo.Client, found *outcome) error {
	_, err := kadm.NewClient(client).CreateTopic(ctx, 1, 2, nil, one.Topic)
	found.Created = err == nil
	return err
}

func (one securedCase) use(ctx context.Context, found *outcome) error {
	client, err := one.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := one.create(ctx, client, found); err != nil {
		return err
	}
	records := make([]*kgo.Record, one.Count)
	for number := range records {
		records[number] = kgo.StringRecord(strconv.Itoa(number))
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	if found.Values, err = one.consume(ctx, one.Count); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord(one.Last)).FirstErr(); err != nil {
		return err
	}
	found.Written = one.Count + 1
	found.Again, err = one.consume(ctx, 1)
	return err
}

func (one securedCase) consume(ctx context.Context, count int) ([]string, error) {
	values := []string{}
	client, err := one.client(
		kgo.ConsumerGroup(one.Group), kgo.ConsumeTopics(one.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return values, err
	}
	defer client.Close()
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return values, err
		}
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	return values, client.CommitUncommittedOffsets(ctx)
}

func (one securedCase) write(ctx context.Context, found *outcome) error {
	client, err := one.client()
	if err != nil {
		return err
	}
	defer client.Close()
	// By itself it tries again whatever the reason is; an application that asks first is told.
	if err := client.Ping(ctx); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr(); err != nil {
		return err
	}
	found.Written = 1
	return nil
}

func (one securedCase) stay(ctx context.Context, found *outcome) error {
	client, err := one.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := one.create(ctx, client, found); err != nil {
		return err
	}
	until := time.Now().Add(time.Duration(one.Seconds * float64(time.Second)))
	for ; time.Now().Before(until); found.Written++ {
		err := client.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr()
		if err != nil {
			return errors.Join(errors.New("while it stayed"), err)
		}
		time.Sleep(time.Duration(one.Pause * float64(time.Second)))
	}
	return nil
}
