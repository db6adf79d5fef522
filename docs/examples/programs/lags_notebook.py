# %% [markdown]
# # Who lags, and why
# Cells of a notebook: VS Code, PyCharm and `jupytext --to ipynb` know `# %%`. STORE and TOPIC are variables of the environment.

# %%
import os

import pulsar_admin as pa

store = pa.open_store(os.environ["STORE"])
store.overview()

# %%
topic = store.topic(os.environ["TOPIC"])
backlogs = {name: topic.cursor(name).backlog() for name in topic.subscriptions()}
slowest = topic.cursor(max(backlogs, key=lambda name: backlogs[name].entries))
topic.stats()

# %%
slowest.why()

# %%
slowest.clear()  # a plan: this store is open for reading

# %%
store.doctor()
